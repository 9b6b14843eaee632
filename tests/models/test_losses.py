"""The head with its loss against torch's linear layer and cross-entropy."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from models import losses
from models.llama_spec import LlamaSpec
from models.losses import linear_cross_entropy
from models.topology.ancre import Spec as Ancre

WORDS, FEATURES = 50, 8


@pytest.fixture(params=[1, 7, 1000], ids=lambda rows: f"{rows} rows at once")
def rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(losses, "LOGITS", request.param * WORDS)
    count: int = request.param
    return count


def case(shape: tuple[int, ...] = (3, 5), dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    source = torch.Generator().manual_seed(0)
    x = torch.randn((*shape, FEATURES), generator=source, dtype=torch.float64)
    weight = torch.randn((WORDS, FEATURES), generator=source, dtype=torch.float64)
    targets = torch.randint(-1, WORDS, shape, generator=source)  # some are ignored
    return x.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_(), targets


def reference(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    logits = linear(x, weight).flatten(0, -2)
    wide = torch.promote_types(logits.dtype, torch.float32)
    return cross_entropy(logits.to(wide), targets.flatten(), ignore_index=-1, reduction="sum")


@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (20,), (2, 3, 4)])
def test_loss_and_gradients_are_those_of_cross_entropy(rows, shape):
    x, weight, targets = case(shape)
    found = []
    for loss in (linear_cross_entropy(x, weight, targets), reference(x, weight, targets)):
        found.append([loss.detach(), *torch.autograd.grad(loss * 0.3, (x, weight))])
    torch.testing.assert_close(*found)


def test_tokens_without_a_target_count_for_nothing(rows):
    x, weight, targets = case()
    loss = linear_cross_entropy(x, weight, torch.full_like(targets, -1))
    to_x, to_weight = torch.autograd.grad(loss, (x, weight))
    assert loss == 0 and not to_x.any() and not to_weight.any()
    alone = targets.clone()
    alone[1:] = -1
    loss = linear_cross_entropy(x, weight, alone)
    (to_x,) = torch.autograd.grad(loss, x)
    assert to_x[0].any() and not to_x[1:].any()


def test_no_token_at_all():
    x, weight, targets = case((0, 5))
    loss = linear_cross_entropy(x, weight, targets)
    to_x, to_weight = torch.autograd.grad(loss, (x, weight))
    assert loss == 0 and to_x.shape == x.shape and not to_weight.any()


def test_large_logits_stay_finite():
    x, weight, targets = case()
    torch.testing.assert_close(
        linear_cross_entropy(1e3 * x, weight, targets), reference(1e3 * x, weight, targets), rtol=1e-12, atol=0
    )


def test_autocast_is_as_near_as_that_of_cross_entropy(rows):
    """Both round to bfloat16 in the same places, but the sums of the parts are float32 here."""
    x, weight, targets = case((16, 16), torch.float32)
    exact = torch.autograd.grad(reference(x, weight, targets), (x, weight))
    errors = []
    for function in (linear_cross_entropy, reference):
        with torch.autocast("cpu", torch.bfloat16):
            loss = function(x, weight, targets)
        gradients = torch.autograd.grad(loss, (x, weight))
        assert loss.dtype == gradients[0].dtype == gradients[1].dtype == torch.float32
        errors.append([(one - other).norm() / other.norm() for one, other in zip(gradients, exact, strict=True)])
    assert all(ours < 1.2 * theirs < 0.02 for ours, theirs in zip(*errors, strict=True))


def test_bfloat16_weights_have_bfloat16_gradients_and_a_float32_loss(rows):
    x, weight, targets = case(dtype=torch.bfloat16)
    loss = linear_cross_entropy(x, weight, targets)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, reference(x, weight, targets), rtol=1e-3, atol=0)
    for ours, theirs in zip(
        torch.autograd.grad(loss, (x, weight)),
        torch.autograd.grad(reference(x, weight, targets), (x, weight)),
        strict=True,
    ):
        assert ours.dtype == torch.bfloat16
        torch.testing.assert_close(ours, theirs, rtol=0.05, atol=0.05)


def test_without_gradients_only_the_loss_is_computed(monkeypatch):
    x, weight, targets = case()
    monkeypatch.setattr(losses, "_add_product", None)
    with torch.no_grad():
        loss = linear_cross_entropy(x, weight, targets)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, reference(x, weight, targets).detach())


def test_a_second_backward_is_refused():
    x, weight, targets = case()
    loss = linear_cross_entropy(x, weight, targets)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match=r"^the loss was taken backward before"):
        loss.backward()


def test_a_target_beyond_the_vocabulary_is_an_error():
    x, weight, targets = case()
    with pytest.raises((RuntimeError, IndexError), match=r"out of bounds"):
        linear_cross_entropy(x, weight, targets.fill_(WORDS))


def test_the_decoder_gives_the_loss_of_its_logits():
    network = LlamaSpec(width=16, ffn_width=24, depth=3, heads=2, vocab_size=40).build(Ancre()).double()
    source = torch.Generator().manual_seed(1)
    tokens, targets = (torch.randint(40, (2, 9), generator=source) for _ in range(2))
    targets[1, 5:] = -1
    logits = network(tokens)
    expected = cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1, reduction="sum")
    loss = network(tokens, targets)
    torch.testing.assert_close(loss, expected)
    ours, theirs = (torch.autograd.grad(one, [*network.parameters()]) for one in (loss, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)  # coefficients are float32


@pytest.mark.filterwarnings("ignore")  # of torch, about its own compiler
def test_torch_compile_gives_the_same():
    x, weight, targets = case()
    compiled = torch.compile(linear_cross_entropy, backend="aot_eager")
    found = [
        torch.autograd.grad(function(x, weight, targets), (x, weight)) for function in (compiled, linear_cross_entropy)
    ]
    torch.testing.assert_close(*found)
