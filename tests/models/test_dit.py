"""DiT against the published sizes, torch's counters, and diffusers' model of the same weights."""

from itertools import pairwise

import pytest
import torch
from pydantic import ValidationError
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from models.dit import Dit, grid
from models.dit_spec import PATCHES, SIZES, DitSpec
from models.optim.parts import numbers, shapes
from models.topology.ancre import Spec as Ancre
from models.topology.cascaded import Spec as Cascaded

TINY = DitSpec(width=16, depth=3, heads=2, patch=2, image_size=8, num_classes=5)


def tiny(topology=None, *, checkpoint=False, segment=None, spec: DitSpec = TINY, std: float | None = 0.2) -> Dit:
    """With weights large enough for gates to be open and attention far from uniform; `std` None: as they start."""
    torch.manual_seed(0)
    network = spec.build(topology or Cascaded(), checkpoint=checkpoint, segment=segment)
    for weight in network.parameters() if std else ():
        torch.nn.init.normal_(weight, std=std)
    return network


def inputs(batch: int = 3, spec: DitSpec = TINY) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(1)
    x = torch.randn(batch, *spec.shape, generator=drawn)
    return x, torch.tensor([999, 0, 417, 5])[:batch], torch.tensor([0, spec.num_classes, 2, 4])[:batch]


# 33M, 130M, 458M and 675M in 2212.09748; patches change the embedding and the head alone.
EXACT = {
    "s/2": 32_865_056,
    "s/4": 32_920_448,
    "s/8": 33_142_016,
    "b/2": 130_315_808,
    "b/4": 130_426_496,
    "b/8": 130_869_248,
    "l/2": 457_840_672,
    "l/4": 457_988_224,
    "l/8": 458_578_432,
    "xl/2": 674_834_720,
    "xl/4": 675_000_704,
    "xl/8": 675_664_640,
}


@pytest.mark.parametrize(("size", "count"), EXACT.items())
def test_named_sizes_have_their_exact_parameter_counts(size, count):
    assert DitSpec(size=size).num_params() == count


@pytest.mark.parametrize(("size", "millions"), [("s/2", 33), ("b/2", 130), ("l/2", 458), ("xl/2", 675)])
def test_they_are_the_published_ones(size, millions):
    assert round(DitSpec(size=size).num_params() / 1e6) == millions


@pytest.mark.parametrize(
    "spec",
    [DitSpec(size=f"{name}/{patch}") for name in SIZES for patch in PATCHES]
    + [DitSpec(size="nano/2", image_size=8, channels=1, num_classes=10, mlp_ratio=3)],
    ids=lambda spec: f"{spec.width}/{spec.patch}",
)
def test_the_built_network_has_the_shapes_that_the_spec_says(spec):
    with torch.device("meta"):
        network = spec.build(Ancre())

    def table(shapes) -> dict:
        counts: dict = {}
        for shape in shapes:
            counts[shape.size, shape.part] = counts.get((shape.size, shape.part), 0) + shape.count
        return counts

    assert table(shapes(network)) == table(spec.shapes(Ancre()))
    assert numbers(spec.shapes(Cascaded())) == spec.num_params()
    assert spec.num_coefficients(Ancre()) == spec.depth * (spec.depth + 1) // 2


def test_diffusers_counts_the_same_but_for_its_embeddings_in_each_block():
    from diffusers import DiTTransformer2DModel

    spec = DitSpec(size="s/2")
    with torch.device("meta"):
        theirs = DiTTransformer2DModel(6, 64, out_channels=8, num_layers=12, sample_size=32, num_embeds_ada_norm=1000)
    embeddings = sum(p.numel() for p in theirs.transformer_blocks[0].norm1.emb.parameters())
    assert sum(p.numel() for p in theirs.parameters()) - 11 * embeddings == spec.num_params()


def diffusers_names(depth: int) -> dict[str, list[list[str]]]:
    """Our name of each parameter: its copies in diffusers, each of one parameter or of several, row upon row."""
    embeddings = [f"transformer_blocks.{j}.norm1.emb" for j in range(depth)]  # one for each block; ours is one for all
    names = {
        "patches": [["pos_embed.proj"]],
        "time.0": [[f"{emb}.timestep_embedder.linear_1"] for emb in embeddings],
        "time.2": [[f"{emb}.timestep_embedder.linear_2"] for emb in embeddings],
        "labels": [[f"{emb}.class_embedder.embedding_table"] for emb in embeddings],
        "modulation": [["proj_out_1"]],
        "head": [["proj_out_2"]],
    }
    for j in range(depth):
        theirs, ours = f"transformer_blocks.{j}", f"stack.blocks.{j}"
        names[f"{ours}.modulation"] = [[f"{theirs}.norm1.linear"]]
        names[f"{ours}.attention.qkv"] = [[f"{theirs}.attn1.to_{part}" for part in "qkv"]]
        names[f"{ours}.attention.out"] = [[f"{theirs}.attn1.to_out.0"]]
        names[f"{ours}.up"] = [[f"{theirs}.ff.net.0.proj"]]
        names[f"{ours}.down"] = [[f"{theirs}.ff.net.2"]]
    return {
        f"{ours}.{kind}": [[f"{module}.{kind}" for module in copy] for copy in copies]
        for ours, copies in names.items()
        for kind in ("weight", "bias")
    }


def diffusers_twin(ours: Dit) -> tuple[torch.nn.Module, dict[str, list[list[torch.nn.Parameter]]]]:
    """diffusers' model with our weights, and which of its parameters ours are."""
    from diffusers import DiTTransformer2DModel

    theirs = DiTTransformer2DModel(
        TINY.heads,
        TINY.width // TINY.heads,
        TINY.channels,
        2 * TINY.channels,
        TINY.depth,
        sample_size=TINY.image_size,
        num_embeds_ada_norm=TINY.num_classes,
        norm_eps=1e-6,
    ).eval()  # when training it drops labels by itself
    for block in theirs.transformer_blocks:
        block.norm1.emb.time_proj.downscale_freq_shift = 0  # diffusers lets the slowest wave be 1e-4 exactly
    names = diffusers_names(TINY.depth)
    pairs = {
        name: [[theirs.get_parameter(part) for part in copy] for copy in names[name]]
        for name, _ in ours.named_parameters()
    }
    for name, weight in ours.named_parameters():
        for copy in pairs[name]:
            rows = weight.data[HEAD] if name.startswith("head") else weight.data
            for part, piece in zip(copy, rows.chunk(len(copy)), strict=True):
                part.data.copy_(piece.view_as(part))
    return theirs, pairs


# Rows of their head are pixels of a patch, then channels; ours channels, then pixels.
HEAD = torch.arange(2 * TINY.channels * TINY.patch**2).view(-1, TINY.patch, TINY.patch).permute(1, 2, 0).flatten()


def test_output_and_gradients_equal_those_of_diffusers():
    ours = tiny()
    theirs, pairs = diffusers_twin(ours)
    x, t, y = inputs()
    out, reference = ours(x, t, y), theirs(x, t, y, return_dict=False)[0]
    torch.testing.assert_close(out, reference, rtol=1e-4, atol=1e-4)
    assert reference.std() > 0.1
    for result in (out, reference):
        (result * torch.linspace(-1, 1, result.numel()).view_as(result)).sum().backward()
    for name, weight in ours.named_parameters():
        gradient = sum(
            torch.cat([part.grad.flatten(1 if part.ndim > 1 else 0) for part in copy]) for copy in pairs[name]
        )
        mine = weight.grad[HEAD] if name.startswith("head") else weight.grad
        torch.testing.assert_close(mine, gradient, rtol=1e-3, atol=1e-3, msg=lambda text, name=name: f"{name}: {text}")


def test_positions_are_those_of_diffusers():
    from diffusers.models.embeddings import get_2d_sincos_pos_embed

    torch.testing.assert_close(grid(16, 384), get_2d_sincos_pos_embed(384, 16, base_size=16).float())


def test_a_new_network_says_zero_and_its_blocks_are_the_identity():
    network = tiny(std=None)
    x, t, y = inputs()
    assert torch.equal(network(x, t, y), torch.zeros(3, 8, 8, 8))
    h, condition = torch.randn(3, TINY.tokens, TINY.width), torch.randn(3, 1, TINY.width)
    for block in network.stack.blocks:
        assert torch.equal(block(h, condition), torch.zeros_like(h))
    assert torch.equal(network.stack(h, condition), h)


@pytest.mark.parametrize(("inner", "growth"), [("drop", 1), ("keep", 17 / 3)])
def test_new_gated_blocks_are_mixed_as_the_topology_says(inner, growth):
    """Branches are zero. Dropped: a mean of equal states. Kept: h_j = h_{j-1} + mean(h_0 .. h_{j-1})."""
    h, condition = torch.randn(3, TINY.tokens, TINY.width), torch.randn(3, 1, TINY.width)
    network = tiny(Ancre(inner_residual=inner), std=None)
    torch.testing.assert_close(network.stack(h, condition), growth * h)


@pytest.mark.parametrize("inner", ["keep", "drop"])
def test_a_mix_of_gated_blocks_is_the_sum_that_its_equation_says(inner):
    network = tiny(Ancre(inner_residual=inner, temperature=1.0))
    p = network.stack.topology.coefficients()
    h, condition = torch.randn(3, TINY.tokens, TINY.width), torch.randn(3, 1, TINY.width)
    states = [h]
    for j, block in enumerate(network.stack.blocks, 1):
        branch = block(states[-1], condition)
        own = states[-1] + branch if inner == "keep" else branch
        states.append(own + sum(p[i, j] * state for i, state in enumerate(states)))
    torch.testing.assert_close(network.stack(h, condition), states[-1], rtol=1e-4, atol=1e-4)


def test_a_topology_changes_no_initial_weight():
    plain, mixed = tiny(std=None), tiny(Ancre(), std=None)
    for name, weight in plain.named_parameters():
        assert torch.equal(weight, mixed.get_parameter(name)), name


def test_weights_start_as_published():
    network = DitSpec(size="s/2").build(Cascaded())
    assert network.labels.weight.std().item() == pytest.approx(0.02, rel=0.01)
    up = network.stack.blocks[3].up
    assert up.weight.abs().max().item() == pytest.approx((6 / (384 + 1536)) ** 0.5, rel=1e-3)  # Xavier's bound
    assert not up.bias.any()


def test_each_image_is_read_by_itself_and_by_its_time_and_class():
    network = tiny(Ancre())
    x, t, y = inputs()
    together = network(x, t, y)
    for n in range(3):
        torch.testing.assert_close(network(x[n, None], t[n, None], y[n, None])[0], together[n], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(network(x, t.flip(0), y)[0], together[0], atol=0.1)
    assert not torch.allclose(network(x, t, y.flip(0))[0], together[0], atol=0.1)


def test_pixels_are_read_as_well():
    spec = DitSpec(size="nano/2", image_size=8, channels=1, num_classes=10)
    assert spec.shape == (1, 8, 8)
    assert tiny(spec=spec)(*inputs(spec=spec)).shape == (3, 2, 8, 8)


@pytest.mark.parametrize(("topology", "segment"), [(Ancre(), None), (Cascaded(), 2)])
def test_recomputed_blocks_give_the_same_gradients(topology, segment):
    gradients = []
    for checkpoint in (False, True):
        network = tiny(topology, checkpoint=checkpoint, segment=segment if checkpoint else None)
        network(*inputs()).square().mean().backward()
        gradients.append([p.grad for p in network.parameters()])
    for kept, recomputed in zip(*gradients, strict=True):
        torch.testing.assert_close(kept, recomputed)


def test_bfloat16_autocast_stays_near_float32():
    network = tiny(Ancre())
    with torch.autocast("cpu", torch.bfloat16):
        mixed = network(*inputs())
    mixed.float().square().mean().backward()
    exact = network(*inputs())
    assert (mixed.float() - exact).square().mean() < 1e-3 * exact.square().mean()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in network.parameters())


def test_bfloat16_weights_keep_coefficients_float32():
    network = tiny(Ancre()).bfloat16()
    assert network(*inputs()).dtype == torch.bfloat16
    assert network.stack.topology.c.dtype == torch.float32


def test_flops_are_those_that_torch_counts():
    network, batch = tiny(), 3
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        network(*inputs(batch)).sum().backward()
    assert counter.get_total_flops() == batch * TINY.flops_per_image()


@pytest.mark.parametrize("bfloat16", [False, True])
@pytest.mark.parametrize(("checkpoint", "segment"), [(False, None), (True, None), (True, 2)])
def test_activation_bytes_are_what_autograd_keeps(bfloat16, checkpoint, segment):
    # Many tokens: autocast's copies of the weights, which are kept too, hardly count.
    sizes = TINY.model_dump() | {"width": 32, "image_size": 32}

    def kept(depth: int) -> float:
        network = tiny(spec=DitSpec(**(sizes | {"depth": depth})), checkpoint=checkpoint, segment=segment)
        own = {p.untyped_storage().data_ptr() for p in network.parameters()}
        storages = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                storages[storage.data_ptr()] = (storage.nbytes(), tensor)
            return tensor

        autocast = torch.autocast("cpu", torch.bfloat16, enabled=bfloat16)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), autocast:
            out = network(*inputs(4, network.spec))
        assert out.requires_grad
        return sum(size for size, _ in storages.values()) / 4

    formula = [
        DitSpec(**(sizes | {"depth": depth})).activation_bytes(
            bfloat16=bfloat16, checkpoint=checkpoint, segment=segment or 1
        )
        for depth in (2, 4)
    ]
    assert kept(4) - kept(2) == pytest.approx(formula[1] - formula[0], rel=0.05)


def test_a_size_is_the_same_spec_as_its_numbers():
    assert DitSpec(size="b/4") == DitSpec(width=768, depth=12, heads=12, patch=4)
    assert DitSpec(size="b/4", depth=24).depth == 24
    assert "size" not in DitSpec(size="b/4").model_dump()
    counts = [DitSpec(size=f"{name}/2").num_params() for name in SIZES]
    assert all(smaller < larger for smaller, larger in pairwise(counts))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"size": "b/3"}, "no size 'b/3' (there are: nano, micro, s, b, l, xl, each with /2, /4 or /8, such as 'b/2')"),
        ({"size": "b"}, "no size 'b'"),
        ({"size": ["b/2"]}, "no size ['b/2']"),
        ({"size": "s/2", "heads": 7}, "heads 7 does not divide width 384; the nearest that does is 6"),
        ({"size": "s/2", "patch": 3}, "patch 3 does not divide image_size 32; the nearest that does is 2"),
        ({"size": "s/8", "image_size": 28}, "patch 8 does not divide image_size 28; the nearest that does is 7"),
        ({"size": "nano/2", "width": 6, "heads": 1}, "width 6 must be a multiple of 4"),
        ({"size": "nano/2", "depth": 0}, "greater than or equal to 1"),
        ({"size": "nano/2", "depht": 3}, "Extra inputs are not permitted"),
    ],
)
def test_a_wrong_spec_is_refused_in_one_line(values, message):
    with pytest.raises(ValidationError) as caught:
        DitSpec(**values)
    (error,) = caught.value.errors()
    assert message in error["msg"]
    assert "\n" not in error["msg"]


@pytest.mark.parametrize("label", [5, -1])
def test_a_class_out_of_range_is_refused_in_one_line(label):
    with pytest.raises(ValueError, match=f"^class {label}: this network knows the classes 0 to 4$"):
        TINY.check_classes([0, 4, label])


def test_images_of_another_shape_are_refused_in_one_line():
    x, t, y = inputs()
    with pytest.raises(ValueError, match=r"^images of \(4, 6, 6\): this network reads \(4, 8, 8\)$"):
        tiny()(x[:, :, :6, :6], t, y)
