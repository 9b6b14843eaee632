"""The fused mix under autograd: gradcheck, the plain sum over random weights, and every way a stack is used."""

import copy
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from models.mixing import Weighted
from models.stack import Stack
from models.topology.ancre import Spec as Ancre
from models.topology.ancre_sparse import Spec as Sparse
from models.topology.cascaded import Spec as Cascaded


def fused(x: Tensor, outs: list[Tensor], weights: Tensor) -> Tensor:
    """h_K where step j adds outs[j-1] * h_{j-1}, so that every state passes through a block."""
    state = Weighted(x, weights)
    for out in outs:
        state.write(out * state.read())
    return state.finish()


def plain(x: Tensor, outs: list[Tensor], weights: Tensor) -> Tensor:
    states = [x]
    for j, out in enumerate(outs, start=1):
        h = out * states[-1]
        for i in range(j):
            h = h + weights[i, j] * states[i]
        states.append(h)
    return states[-1]


def case(depth: int, shape: tuple[int, ...], seed: int, density: float = 1.0) -> tuple[Tensor, list[Tensor], Tensor]:
    source = torch.Generator().manual_seed(seed)
    x, *outs = (torch.randn(shape, generator=source, dtype=torch.float64) for _ in range(depth + 1))
    weights = torch.randn(depth + 1, depth + 1, generator=source, dtype=torch.float64).triu(1) / depth
    weights = weights * (torch.rand(weights.shape, generator=source) < density)
    return x, outs, weights


def with_grad(x: Tensor, outs: list[Tensor], weights: Tensor) -> list[Tensor]:
    return [tensor.requires_grad_() for tensor in (x, *outs, weights)]


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_gradcheck(depth: int) -> None:
    inputs = with_grad(*case(depth, (2, 3), seed=0))
    assert torch.autograd.gradcheck(lambda x, *rest: fused(x, list(rest[:-1]), rest[-1]), inputs)


@settings(max_examples=40)
@given(st.integers(1, 40), st.sampled_from([(3,), (2, 2, 3), (70,)]), st.integers(0, 99), st.sampled_from([0.2, 1.0]))
def test_equals_the_plain_sum(depth: int, shape: tuple[int, ...], seed: int, density: float) -> None:
    """Depths on both sides of every block size of the recursion."""
    x, outs, weights = case(depth, shape, seed, density)
    inputs = with_grad(x, outs, weights)
    ours, theirs = fused(x, outs, weights), plain(x, outs, weights)
    torch.testing.assert_close(ours, theirs)
    seen = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    grads = [torch.autograd.grad((h * seen).sum(), inputs) for h in (ours, theirs)]
    mine, other = ([*gradients[:-1], gradients[-1].triu(1)] for gradients in grads)
    torch.testing.assert_close(mine, other, rtol=1e-7, atol=1e-9)


def branch() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh())


@pytest.fixture
def network() -> Stack:
    torch.manual_seed(0)
    made = Stack([branch() for _ in range(6)], Ancre(temperature=0.5), returns="branch")
    made.topology.c.data = torch.randn(21)
    return made


def gradients(network: Stack, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(network.parameters())))


def test_two_forwards_in_one_graph_add_their_gradients(network: Stack) -> None:
    a, b = torch.randn(3, 4), torch.randn(3, 4)
    together = gradients(network, network(a).sum() + network(network(b)).sum())
    apart = zip(gradients(network, network(a).sum()), gradients(network, network(network(b)).sum()), strict=True)
    torch.testing.assert_close(together, [one + two for one, two in apart])


def test_a_kept_graph_can_go_backward_twice(network: Stack) -> None:
    out = network(torch.randn(3, 4)).square().sum()
    first = torch.autograd.grad(out, list(network.parameters()), retain_graph=True)
    torch.testing.assert_close(gradients(network, out), list(first))


def test_without_gradients_it_computes_the_same(network: Stack) -> None:
    x = torch.randn(3, 4)
    with torch.no_grad():
        without = network(x)
    assert not without.requires_grad
    torch.testing.assert_close(without, network(x).detach())


def test_frozen_blocks_and_frozen_coefficients(network: Stack) -> None:
    x = torch.randn(3, 4)
    every = dict(zip(dict(network.named_parameters()), gradients(network, network(x).sum()), strict=True))
    network.blocks.requires_grad_(False)
    (c,) = torch.autograd.grad(network(x).sum(), [network.topology.c])
    torch.testing.assert_close(c, every["topology.c"])
    network.requires_grad_(True).topology.requires_grad_(False)
    blocks = torch.autograd.grad(network(x).sum(), list(network.blocks.parameters()))
    torch.testing.assert_close(list(blocks), [grad for name, grad in every.items() if name != "topology.c"])


def test_a_whole_stack_under_activation_checkpointing(network: Stack) -> None:
    x = torch.randn(3, 4, requires_grad=True)
    inputs = [x, *network.parameters()]
    straight = torch.autograd.grad(network(x).square().sum(), inputs)
    again = torch.autograd.grad(checkpoint(network, x, use_reentrant=False).square().sum(), inputs)
    network.checkpoint = True
    by_block = torch.autograd.grad(network(x).square().sum(), inputs)
    torch.testing.assert_close(again, straight)
    torch.testing.assert_close(by_block, straight)


def test_states_that_are_not_contiguous(network: Stack) -> None:
    x = torch.randn(4, 3).T.requires_grad_()
    copied = x.detach().contiguous().requires_grad_()
    network(x).square().sum().backward()
    network(copied).square().sum().backward()
    torch.testing.assert_close(x.grad, copied.grad)


def test_an_empty_batch(network: Stack) -> None:
    out = network(torch.zeros(0, 4))
    assert out.shape == (0, 4)
    assert all((grad == 0).all() for grad in gradients(network, out.sum()))


def test_autocast_keeps_the_mix_close_to_float32(network: Stack) -> None:
    x = torch.randn(3, 4)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = network(x)
    torch.testing.assert_close(mixed.float(), network(x), rtol=3e-2, atol=3e-2)
    assert all(grad.isfinite().all() for grad in gradients(network, mixed.float().sum()))


def test_a_block_that_writes_into_its_input_is_refused(network: Stack) -> None:
    class InPlace(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.add_(1)

    with torch.no_grad(), pytest.raises(ValueError, match="block 1 changed its input in place"):
        Stack([InPlace(), InPlace()], Ancre())(torch.randn(3, 4))


def test_copies_and_saved_weights_give_the_same(network: Stack) -> None:
    x = torch.randn(3, 4)
    twin = Stack([branch() for _ in range(6)], Ancre(temperature=0.5), returns="branch")
    twin.load_state_dict(network.state_dict())
    torch.testing.assert_close(twin(x), network(x))
    torch.testing.assert_close(copy.deepcopy(network)(x), network(x))


def test_saved_for_backward_is_one_state_a_step() -> None:
    """What autograd keeps beside the blocks' own tensors: the states, once each, and nothing of the sums between."""
    kept: list[int] = []

    def pack(tensor: Tensor) -> Any:
        kept.append(tensor.numel())
        return tensor

    depth, x = 12, torch.randn(64, 50)
    topology = Ancre().build(depth, 50)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        state = topology.start(x, "branch")
        for _ in range(depth):
            state.write(state.read() + 1)  # adding a number saves nothing
        state.finish().sum()
    assert sum(kept) <= depth * x.numel() + 10 * (depth + 1) ** 2


# --- what autograd may ask of the states in between -------------------------------------------------------------------


@pytest.fixture
def deep() -> Stack:
    """Deep enough for blocks of sums and for more than one piece of memory."""
    torch.manual_seed(0)
    made = Stack([branch() for _ in range(36)], Ancre(temperature=0.5), returns="branch").double()
    made.topology.c.data = torch.randn(made.topology.c.shape)
    return made


def states_of(network: Stack, x: Tensor) -> list[Tensor]:
    """h_0 .. h_K of the fused mix: what blocks were given, and the output."""
    seen: list[Tensor] = []
    hooks = [block.register_forward_pre_hook(lambda _, given: seen.append(given[0])) for block in network.blocks]
    seen.append(network(x))
    for hook in hooks:
        hook.remove()
    return seen


def plain_states(network: Stack, x: Tensor) -> list[Tensor]:
    weights, states = network.topology.total("branch"), [x]
    for j, block in enumerate(network.blocks, start=1):
        h = block(states[-1])
        for i in range(j):
            h = h + weights[i, j] * states[i]
        states.append(h)
    return states


def test_gradients_of_states_in_between_are_whole(deep: Stack) -> None:
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    ours, theirs = states_of(deep, x), plain_states(deep, x)
    torch.testing.assert_close(ours, theirs)
    inner = [torch.autograd.grad(states[-1].square().sum(), states[1:-1]) for states in (ours, theirs)]
    torch.testing.assert_close(*inner)


@pytest.mark.parametrize("used", [[0], [5], [20, 35], [36, 3]])
def test_losses_on_some_states_alone_and_then_on_all(deep: Stack, used: list[int]) -> None:
    """An early exit, then a second and a third backward over the same graph."""
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    inputs = [x, *deep.parameters()]
    found = []
    for states in (states_of(deep, x), plain_states(deep, x)):
        part, whole = sum(states[k].square().sum() for k in used), states[-1].sum()
        for loss in (part, part + whole, part):
            grads = torch.autograd.grad(loss, inputs, retain_graph=True, allow_unused=True, materialize_grads=True)
            found.append(list(grads))
    for ours, theirs in zip(found[:3], found[3:], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)  # c is float32


def test_saved_states_may_be_moved_elsewhere(deep: Stack) -> None:
    """Offloading replaces every saved state by a copy, which is then no longer a row beside others."""
    x = torch.randn(3, 4, dtype=torch.float64)
    expected = gradients(deep, deep(x).square().sum())
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor.clone(), lambda tensor: tensor):
        out = deep(x)
    torch.testing.assert_close(gradients(deep, out.square().sum()), expected)


def test_a_second_derivative_is_refused(network: Stack) -> None:
    x = torch.randn(3, 4, requires_grad=True)
    with pytest.raises(NotImplementedError, match="create_graph"):
        torch.autograd.grad(network(x).sum(), x, create_graph=True)


def test_a_depth_of_several_blocks() -> None:
    inputs = with_grad(*case(70, (2, 16), seed=0))
    grads = [torch.autograd.grad(f(inputs[0], inputs[1:-1], inputs[-1]).sum(), inputs) for f in (fused, plain)]
    mine, other = ([*found[:-1], found[-1].triu(1)] for found in grads)
    torch.testing.assert_close(mine, other, rtol=1e-7, atol=1e-9)


# --- precision, compilers, workers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_no_worse_than_term_by_term(deep: Stack, dtype: torch.dtype) -> None:
    x = torch.randn(64, 4, dtype=torch.float64)
    exact = deep(x)
    half = copy.deepcopy(deep).to(dtype)
    errors = [(h.double() - exact).abs().mean() for h in (half(x.to(dtype)), plain_states(half, x.to(dtype))[-1])]
    assert errors[0] < 1.1 * errors[1]
    exact_c, half_c = (gradients(n, n(x.to(d)).float().sum())[-1] for n, d in ((deep, torch.float64), (half, dtype)))
    assert half_c.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(exact_c, half_c, dim=0) > 0.99


@pytest.mark.filterwarnings("ignore")  # of torch, about its own compiler
def test_torch_compile_gives_the_same(network: Stack) -> None:
    x = torch.randn(3, 4)
    compiled = torch.compile(network, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), network(x))
    torch.testing.assert_close(gradients(network, compiled(x).sum()), gradients(network, network(x).sum()))


def test_data_parallel_training_sees_every_gradient(network: Stack, tmp_path: Path) -> None:
    expected = gradients(network, network(torch.ones(3, 4)).sum())
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        nn.parallel.DistributedDataParallel(network)(torch.ones(3, 4)).sum().backward()
    finally:
        torch.distributed.destroy_process_group()
    torch.testing.assert_close([p.grad for p in network.parameters()], expected)


# --- memory -----------------------------------------------------------------------------------------------------------


def memory(network: Stack, x: Tensor) -> tuple[int, int]:
    """Bytes above the start, at the peak and at the end of a forward and backward whose output is still held."""
    out = network(x)
    out.sum().backward()  # gradients of parameters now have their memory
    del out
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        held = network(x)
        held.sum().backward()
    sizes = [event.nbytes() for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    assert held.shape == x.shape
    return max(accumulate(sizes)), sum(sizes)


@pytest.mark.parametrize("depth", [8, 40])
def test_memory_above_cascaded_is_at_most_one_state_a_step(depth: int) -> None:
    blocks = [nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32)) for _ in range(depth)]
    x = torch.randn(500, 32)
    state = x.numel() * x.element_size()
    usual, usual_end = memory(Stack(blocks, Cascaded(), returns="branch"), x)
    mixed, mixed_end = memory(Stack(blocks, Ancre(), returns="branch"), x)
    assert mixed <= usual + depth * state
    assert mixed_end <= usual_end + state  # no history outlives its backward


def test_recomputed_segments_keep_the_states_at_their_edges_alone() -> None:
    blocks = [nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(12)]
    x = torch.randn(500, 32, requires_grad=True)
    kept = []
    for checkpointed in (True, False):
        network = Stack(blocks, Sparse(segment=4), returns="branch", checkpoint=checkpointed)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            held = network(x)
        assert held.requires_grad
        events = profile.profiler.kineto_results.events()
        kept.append(sum(e.nbytes() for e in events if e.name() == "[memory]") / (x.numel() * x.element_size()))
        del held
    assert kept[0] < 3.5  # h_4, h_8, h_12, and the state of the random generator
    assert kept[1] > 24  # every state, and every output of a Tanh


def test_an_output_without_gradients_holds_no_history(network: Stack) -> None:
    with torch.no_grad():
        out = network(torch.randn(100, 4))
    assert out.untyped_storage().nbytes() < 2 * out.numel() * out.element_size()
