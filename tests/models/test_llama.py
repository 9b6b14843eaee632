"""The decoder against the paper's parameter counts, torch's counters, and transformers' decoder of the same weights."""

import pytest
import torch
from pydantic import ValidationError
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from models.llama import Llama, rotation
from models.llama_spec import SIZES, LlamaSpec
from models.topology.ancre import Spec as Ancre
from models.topology.cascaded import Spec as Cascaded

TINY = LlamaSpec(width=16, ffn_width=24, depth=3, heads=2, vocab_size=40)


def tiny(topology=None, *, checkpoint=False) -> Llama:
    torch.manual_seed(0)
    return TINY.build(topology or Cascaded(), checkpoint=checkpoint)


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(TINY.vocab_size, shape, generator=torch.Generator().manual_seed(1))


def transformers_names(depth: int) -> dict[str, str]:
    """Our name of each weight: its name in LlamaForCausalLM."""
    outer = {"embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
    inner = {
        "attention_norm": "input_layernorm",
        "attention.query": "self_attn.q_proj",
        "attention.key": "self_attn.k_proj",
        "attention.value": "self_attn.v_proj",
        "attention.out": "self_attn.o_proj",
        "feed_forward_norm": "post_attention_layernorm",
        "feed_forward.gate": "mlp.gate_proj",
        "feed_forward.up": "mlp.up_proj",
        "feed_forward.down": "mlp.down_proj",
    }
    blocks = {
        f"stack.blocks.{j}.{ours}": f"model.layers.{j}.{theirs}" for j in range(depth) for ours, theirs in inner.items()
    }
    return {f"{ours}.weight": f"{theirs}.weight" for ours, theirs in (outer | blocks).items()}


@pytest.mark.parametrize(("size", "millions"), [("60m", 58.07), ("130m", 134.11), ("350m", 367.97), ("1b", 1339.08)])
def test_named_sizes_have_the_published_parameter_counts(size, millions):
    assert round(LlamaSpec(size=size).num_params() / 1e6, 2) == millions


@pytest.mark.parametrize("size", SIZES)
def test_the_built_network_has_as_many_parameters_as_the_closed_form(size):
    spec = LlamaSpec(size=size)
    with torch.device("meta"):
        network = spec.build(Cascaded())
    assert sum(p.numel() for p in network.parameters()) == spec.num_params()


def test_a_topology_adds_its_coefficients_and_changes_no_initial_weight():
    plain, mixed = tiny(), tiny(Ancre())
    extra = sum(p.numel() for p in mixed.parameters()) - TINY.num_params()
    assert extra == Ancre().num_coefficients(TINY.depth) == 6
    for name, weight in plain.named_parameters():
        assert torch.equal(weight, mixed.get_parameter(name)), name


def test_weights_start_normal_with_the_given_spread():
    head = LlamaSpec(**(TINY.model_dump() | {"vocab_size": 4000, "init_std": 0.5})).build(Cascaded()).head.weight
    assert abs(head.mean()) < 0.01
    assert head.std().item() == pytest.approx(0.5, rel=0.02)


def test_logits_and_gradients_equal_those_of_transformers():
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2}
    theirs = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=40, rms_norm_eps=1e-6, tie_word_embeddings=False))
    ours = tiny()
    pairs = {name: theirs.get_parameter(their_name) for name, their_name in transformers_names(TINY.depth).items()}
    for name, weight in ours.named_parameters():
        torch.nn.init.normal_(weight, std=0.2)  # norms too, and large enough for attention to be far from uniform
        pairs[name].data.copy_(weight.data)
    text, targets = tokens(2, 9), tokens(2, 9)
    logits, reference = ours(text), theirs(text).logits
    torch.testing.assert_close(logits, reference, rtol=1e-5, atol=1e-5)
    for out in (logits, reference):
        cross_entropy(out.flatten(0, 1), targets.flatten()).backward()
    for name, weight in ours.named_parameters():
        torch.testing.assert_close(weight.grad, pairs[name].grad, rtol=1e-5, atol=1e-5)


def by_layers(network: Llama, text: torch.Tensor) -> torch.Tensor:
    """The decoder with value residuals, block after block: values of block n > 1 are the mean of its own and V_1."""
    h, first = network.embedding(text), None
    angles = rotation(text.shape[1], TINY.width // TINY.heads, TINY.rope_base, torch.device("cpu"))
    for block in network.stack.blocks:
        own = block.attention.value(block.attention_norm(h))
        first = own if first is None else first
        hook = block.attention.value.register_forward_hook(lambda *_, mean=(own + first) / 2: mean)
        h = h + block(h, *angles)
        hook.remove()
    return network.head(network.norm(h))


@pytest.mark.parametrize("checkpoint", [False, True])
def test_values_are_averaged_with_those_of_the_first_block(checkpoint):
    torch.manual_seed(0)
    network = TINY.model_copy(update={"value_residual": True}).build(Cascaded(), checkpoint=checkpoint)
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    logits, expected = network(tokens(2, 9)), by_layers(network, tokens(2, 9))
    torch.testing.assert_close(logits, expected)
    found = [torch.autograd.grad(out.square().sum(), list(network.parameters())) for out in (logits, expected)]
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


def test_value_residual_is_no_part_of_a_spec_that_lacks_it():
    """The hash of a configuration is that of its JSON."""
    assert "value_residual" not in TINY.model_dump_json()
    residual = LlamaSpec(**TINY.model_dump(), value_residual=True)
    assert LlamaSpec.model_validate_json(residual.model_dump_json()) == residual != TINY
    assert residual.num_params() == TINY.num_params()


def test_no_token_sees_a_later_one():
    network, text = tiny(Ancre()), tokens(1, 8)
    changed = text.clone()
    changed[0, 5] = (changed[0, 5] + 1) % TINY.vocab_size
    before, after = network(text), network(changed)
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.equal(before[:, 5], after[:, 5])


def test_recomputed_blocks_give_the_same_gradients():
    gradients = []
    for checkpoint in (False, True):
        network = tiny(Ancre(), checkpoint=checkpoint)
        network(tokens(2, 8)).square().mean().backward()
        gradients.append([p.grad for p in network.parameters()])
    for kept, recomputed in zip(*gradients, strict=True):
        torch.testing.assert_close(kept, recomputed)


def test_bfloat16_autocast_stays_near_float32():
    network, text = tiny(Ancre()), tokens(2, 8)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = network(text)
    torch.testing.assert_close(mixed.float(), network(text), rtol=0.05, atol=0.01)
    assert network.stack.topology.c.dtype == torch.float32


@pytest.mark.parametrize("value_residual", [False, True])
def test_flops_are_those_that_torch_counts(value_residual):
    spec = TINY.model_copy(update={"value_residual": value_residual})
    network, length = spec.build(Cascaded()), 12
    angles = rotation(length, TINY.width // TINY.heads, TINY.rope_base, torch.device("cpu"))
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        h = network.embedding(tokens(1, length))
        shared = [network.stack.blocks[0](h, *angles, part="values")] if value_residual else []
        for block in network.stack.blocks:
            h = h + block(h, *angles, *shared)
        network.head(network.norm(h)).sum().backward()
    # This attention computes all length * length scores, and fills in those that causal attention leaves out.
    unneeded = 12 * TINY.width * TINY.depth * (length * length - length * (length + 1) // 2)
    assert counter.get_total_flops() - unneeded == length * spec.flops_per_token(length)


@pytest.mark.parametrize("bfloat16", [False, True])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_activation_bytes_are_what_autograd_keeps(bfloat16, checkpoint):
    def kept(depth: int) -> float:
        network = LlamaSpec(**(sizes | {"depth": depth})).build(Cascaded(), checkpoint=checkpoint)
        own = {p.untyped_storage().data_ptr() for p in network.parameters()}
        storages = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                storages[storage.data_ptr()] = (storage.nbytes(), tensor)
            return tensor

        autocast = torch.autocast("cpu", torch.bfloat16, enabled=bfloat16)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), autocast:
            out = network(tokens(8, 64))
        assert out.requires_grad
        return sum(size for size, _ in storages.values()) / (8 * 64)

    sizes = TINY.model_dump() | {"width": 32, "ffn_width": 80}
    formula = [
        LlamaSpec(**(sizes | {"depth": depth})).activation_bytes(bfloat16=bfloat16, checkpoint=checkpoint)
        for depth in (2, 4)
    ]
    assert kept(4) - kept(2) == pytest.approx(formula[1] - formula[0], rel=0.05)


def test_a_size_is_the_same_spec_as_its_numbers():
    assert LlamaSpec(size="60m") == LlamaSpec(width=512, ffn_width=1376, depth=8, heads=8)
    assert LlamaSpec(size="60m", depth=24).depth == 24
    assert "size" not in LlamaSpec(size="60m").model_dump()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"size": "70m"}, "no size '70m' (there are: nano, micro, 60m, 130m, 350m, 1b)"),
        ({"size": ["60m"]}, "no size ['60m']"),
        ({"size": "nano", "heads": 7}, "7 heads do not divide width 64; the nearest that does is 8"),
        ({"size": "nano", "heads": 64}, "width / heads = 1 must be even"),
        ({"size": "nano", "depth": 0}, "greater than or equal to 1"),
        ({"size": "nano", "depht": 3}, "Extra inputs are not permitted"),
        ({"size": "nano", "norm_eps": float("nan")}, "finite number"),
    ],
)
def test_a_wrong_spec_is_refused_in_one_line(values, message):
    with pytest.raises(ValidationError) as caught:
        LlamaSpec(**values)
    (error,) = caught.value.errors()
    assert message in error["msg"]
    assert "\n" not in error["msg"]
