"""Wired models of transformers against their own layers, run one by one with the states summed as the equations say."""

import copy
import threading
import weakref
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from models import wire as wiring
from models.topology.ancre import Spec as Ancre
from models.topology.ancre_sparse import Spec as Sparse
from models.topology.attention_residual import Spec as AttentionResidual
from models.topology.base import TopologySpec
from models.topology.cascaded import Spec as Cascaded
from models.topology.denseformer import Spec as DenseFormer
from models.topology.fixed_first_prev import Spec as FirstAndPrevious
from models.topology.hyper_connections import Spec as HyperConnections
from models.topology.learnable_cascaded import Spec as LearnableCascaded
from models.wire import wire

DEPTH = 4
SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
    "bos_token_id": 0,
    "eos_token_id": None,
    "pad_token_id": None,
}
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**SIZES),
    "qwen2": lambda: transformers.Qwen2Config(**SIZES),
    "qwen3": lambda: transformers.Qwen3Config(**SIZES, head_dim=4),
    "mistral": lambda: transformers.MistralConfig(**SIZES, head_dim=4, sliding_window=5),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=50, n_embd=16, n_layer=DEPTH, n_head=4, n_positions=64, initializer_range=0.2,
        attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, bos_token_id=0, eos_token_id=None,
    ),
}  # fmt: skip
KEEP = Ancre(inner_residual="keep", temperature=0.5)
ATTENTION = dict.fromkeys(CONFIGS, "self_attn") | {"gpt2": "attn"}
every_family = pytest.mark.parametrize("family", CONFIGS)


def plain(family: str = "llama") -> Any:
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(CONFIGS[family]()).eval()


def wired(topology: TopologySpec = KEEP, family: str = "llama") -> Any:
    """With coefficients off their start."""
    model = plain(family)
    for coefficients in wire(model, topology).parameters():
        coefficients.data += 0.3 * torch.randn(coefficients.shape)
    return model


def text(length: int = 9) -> Tensor:
    return torch.randint(50, (2, length), generator=torch.Generator().manual_seed(1))


def decoder_of(model: Any) -> tuple[Any, nn.ModuleList]:
    decoder = model.base_model
    return decoder, decoder.h if hasattr(decoder, "h") else decoder.layers


def by_layers(model: Any, weights: Tensor, keep: bool) -> Tensor:
    """The logits of h_j = F_j + sum_i weights_ij h_i, from the layers of a model that is not wired."""
    decoder, layers = decoder_of(model)
    calls: list[Any] = []
    hooks = [
        layer.register_forward_pre_hook(lambda _, args, kwargs: calls.append((args, kwargs)), with_kwargs=True)
        for layer in layers
    ]
    model(text(), use_cache=False)
    for hook in hooks:
        hook.remove()
    states = [calls[0][0][0]]
    for j, (layer, (args, kwargs)) in enumerate(zip(layers, calls, strict=True), start=1):
        h = layer(states[-1], *args[1:], **kwargs)
        if not keep:
            h = h - states[-1]
        for i, state in enumerate(states):
            h = h + weights[i, j] * state
        states.append(h)
    norm = decoder.ln_f if hasattr(decoder, "ln_f") else decoder.norm
    return model.lm_head(norm(states[-1]))


def gradients(model: Any, logits: Tensor) -> dict[str, Tensor]:
    loss = cross_entropy(logits.flatten(0, 1), text(logits.shape[1]).flatten())
    named = dict(model.named_parameters())
    found = torch.autograd.grad(loss, [*named.values()], allow_unused=True, materialize_grads=True)
    return dict(zip(named, found, strict=True))


@every_family
def test_cascaded_leaves_every_bit_of_the_logits(family):
    model = plain(family)
    expected = model(text()).logits
    wire(model, Cascaded())
    assert torch.equal(model(text()).logits, expected)


@every_family
@pytest.mark.parametrize("inner_residual", ["keep", "drop"])
def test_logits_and_gradients_are_those_of_the_equations(family, inner_residual):
    model = wired(Ancre(inner_residual=inner_residual, temperature=0.5), family)
    p = decoder_of(model)[0].topology.coefficients()
    expected = by_layers(twin := plain(family), p.detach(), inner_residual == "keep")
    logits = model(text()).logits
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
    ours, theirs = gradients(model, logits), gradients(twin, expected)
    coefficients = ours.pop(next(name for name in ours if "topology" in name))
    assert coefficients.abs().max() > 0
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("family", "topology"),
    [
        *((family, KEEP) for family in CONFIGS),
        ("llama", HyperConnections()),
        ("qwen3", DenseFormer()),
        ("mistral", AttentionResidual()),
    ],
    ids=lambda value: value if isinstance(value, str) else value.kind,
)
def test_the_cache_of_keys_and_values_changes_no_token(family, topology):
    model, prompt = wired(topology, family), text()
    tokens = [model.generate(prompt, max_new_tokens=12, do_sample=False, use_cache=cache) for cache in (True, False)]
    assert torch.equal(*tokens)
    whole, cache, parts = model(tokens[0], use_cache=False).logits, None, []
    for start, stop in pairwise((0, 9, 10, 13, 21)):
        out = model(tokens[0][:, start:stop], cache=cache, use_cache=True)
        cache = out.cache
        parts.append(out.logits)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=1e-4, atol=1e-4)


@every_family
@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_gives_the_same_gradients(family, reentrant):
    model = wired(family=family).train()
    expected = gradients(model, model(text(), use_cache=False).logits)
    model.activation_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    runs: list[int] = []
    decoder_of(model)[1][1].get_submodule(ATTENTION[family]).register_forward_hook(lambda *_: runs.append(1))
    logits = model(text(), use_cache=False).logits
    cross_entropy(logits.flatten(0, 1), text().flatten()).backward()
    assert len(runs) == 2  # it was run again
    torch.testing.assert_close({name: p.grad for name, p in model.named_parameters()}, expected)


@every_family
def test_saved_and_loaded_it_is_the_same_model(family, tmp_path: Path):
    model = wired(family=family)
    model.save_pretrained(tmp_path, max_shard_size="8KB")
    assert len([*tmp_path.glob("*.safetensors")]) > 1
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    wire(loaded, KEEP, saved=tmp_path)
    assert torch.equal(loaded(text()).logits, model(text()).logits)


def test_weights_of_a_model_that_was_never_wired_load_as_before(tmp_path: Path):
    model = plain()
    model.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    wire(loaded, Cascaded())
    assert torch.equal(loaded(text()).logits, model(text()).logits)
    names = dict(wired().named_parameters()).keys() - dict(model.named_parameters()).keys()
    assert names == {"model.topology.c"}


def test_training_moves_the_coefficients_and_lowers_the_loss():
    model = wired().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    before, losses = model.model.topology.c.detach().clone(), []
    for _ in range(20):
        loss = model(text(), labels=text()).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]
    assert (model.model.topology.c - before).abs().max() > 0.01


def test_hidden_states_that_are_asked_for_are_the_mixed_ones():
    model = plain()
    model(text(), output_hidden_states=True)  # transformers' own hooks are there before ours
    wire(model, FirstAndPrevious(inner_residual="keep"))
    states = model(text(), output_hidden_states=True).hidden_states
    assert len(states) == DEPTH + 1
    layer = model.model.layers[1]
    added: list[Tensor] = []
    layer.mlp.register_forward_hook(lambda *_: added.append(_[2]))
    layer.self_attn.register_forward_hook(lambda *_: added.append(_[2][0]))
    model(text())
    block = states[1] + added[0] + added[1]
    torch.testing.assert_close(states[2], block + (states[0] + states[1]) / 2)


@pytest.mark.parametrize("topology", [HyperConnections(), DenseFormer(), LearnableCascaded()], ids=lambda t: t.kind)
def test_topologies_of_other_families_start_where_their_papers_say(topology):
    model = plain()
    expected = plain()(text()).logits
    wire(model, topology)
    logits = model(text()).logits
    if topology.kind == "learnable-cascaded":  # B_j(h) + h: not where the model was
        assert not torch.allclose(logits, expected, atol=1e-2)
    else:
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


def test_bfloat16_models_keep_float32_coefficients():
    model = wired().to(torch.bfloat16)
    assert model.model.topology.c.dtype == torch.float32
    logits = model(text()).logits
    assert logits.dtype == torch.bfloat16
    torch.testing.assert_close(logits.float(), wired()(text()).logits, rtol=0.1, atol=0.3)


@pytest.mark.filterwarnings("ignore")  # of torch, about its own compiler
def test_a_compiled_model_gives_the_same():
    model = wired()
    expected = model(text()).logits
    torch.testing.assert_close(torch.compile(model, backend="aot_eager")(text()).logits, expected)
    assert wiring.RUNNING.get() is None


# --- what a forward leaves behind -------------------------------------------------------------------------------------


def states_made(monkeypatch: pytest.MonkeyPatch, model: Any) -> list[weakref.ref[Any]]:
    made: list[weakref.ref[Any]] = []
    topology = model.model.topology
    start = topology.start

    def watched(x: Tensor, returns: Any) -> Any:
        state = start(x, returns)
        made.append(weakref.ref(state))
        return state

    monkeypatch.setattr(topology, "start", watched)
    return made


def test_no_state_outlives_its_forward(monkeypatch):
    model = wired()
    made = states_made(monkeypatch, model)
    out = model(text())
    assert [state() for state in made] == [None]
    assert out.logits.requires_grad
    assert wiring.RUNNING.get() is None


def test_a_forward_that_fails_leaves_nothing_and_the_next_is_right(monkeypatch):
    model = wired()
    expected = model(text()).logits
    made = states_made(monkeypatch, model)

    def fail(*_: Any) -> None:
        raise RuntimeError("out of memory")

    hook = model.model.layers[2].mlp.register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory") as caught:
        model(text())
    hook.remove()
    del caught
    assert [state() for state in made] == [None]
    assert wiring.RUNNING.get() is None
    assert torch.equal(model(text()).logits, expected)


def test_an_interrupted_forward_is_forgotten_by_the_next():
    model = wired()
    expected = model(text()).logits

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    hook = model.model.layers[2].mlp.register_forward_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        model(text())
    hook.remove()
    assert torch.equal(model(text()).logits, expected)
    assert wiring.RUNNING.get() is None


def test_two_threads_in_one_model_do_not_mix():
    model = wired()
    texts = [text(), text().flip(1)]
    expected = [model(one).logits for one in texts]
    meet = threading.Barrier(2, timeout=30)
    found: dict[int, Tensor] = {}

    def wait(*_: Any) -> None:
        meet.wait()

    hooks = [layer.mlp.register_forward_hook(wait) for layer in model.model.layers]

    def run(number: int) -> None:
        found[number] = model(texts[number]).logits

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for hook in hooks:
        hook.remove()
    for number in range(2):
        assert torch.equal(found[number], expected[number])


def test_a_wired_model_that_runs_within_another():
    inner, outer = wired(), wired(Ancre(temperature=0.5), "gpt2")
    expected = inner(text()).logits, outer(text()).logits
    seen: list[Tensor] = []
    hook = outer.transformer.h[1].mlp.register_forward_hook(lambda *_: seen.append(inner(text()).logits))
    assert torch.equal(outer(text()).logits, expected[1])
    hook.remove()
    assert torch.equal(seen[0], expected[0])


def test_a_copy_has_coefficients_of_its_own(tmp_path: Path):
    model = wired()
    expected = model(text()).logits
    twin = copy.deepcopy(model)
    assert torch.equal(twin(text()).logits, expected)
    twin.model.topology.c.data += torch.randn(10)
    assert not torch.equal(twin(text()).logits, expected)
    assert torch.equal(model(text()).logits, expected)
    torch.save(model, tmp_path / "whole.pt")
    loaded = torch.load(tmp_path / "whole.pt", weights_only=False)
    assert torch.equal(loaded(text()).logits, expected)


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_model_is_wired_once():
    with pytest.raises(ValueError, match=r"^model\.topology is there: a model is wired once; load it anew.*$"):
        wire(wired(), Cascaded())


def test_a_model_without_a_list_of_layers():
    with pytest.raises(ValueError, match=r"^Linear has no list of decoder layers at model\.layers or transformer\.h$"):
        wire(nn.Linear(2, 2), Cascaded())


def test_a_topology_of_another_depth():
    model = plain()
    with pytest.raises(ValueError, match="boundary 5 lies beyond the last of 4 blocks"):
        wire(model, Sparse(boundaries=(5,)))
    wire(model, Cascaded())  # nothing was left half done


def test_a_model_over_several_devices():
    model = plain()
    model.model.layers[3].to("meta")
    with pytest.raises(ValueError, match=r"^the decoder layers lie on 2 devices, not on one: \['cpu', 'meta'\]$"):
        wire(model, Cascaded())


def test_saved_weights_that_were_cut_are_named(tmp_path: Path):
    wired().save_pretrained(tmp_path)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(ValueError, match=rf"^{file}: cannot be read: .*header"):
        wire(again, KEEP, saved=tmp_path)


def test_coefficients_that_were_saved_are_not_forgotten(tmp_path: Path):
    wired().save_pretrained(tmp_path / "one")
    plain().save_pretrained(tmp_path / "none")
    load = transformers.AutoModelForCausalLM.from_pretrained
    with pytest.raises(ValueError, match=r"^the model was saved with topology .*'ancre'.*: give saved=<its folder>$"):
        wire(load(tmp_path / "one"), KEEP)
    with pytest.raises(ValueError, match=r"^the model was saved with topology .*'temperature': 0\.5.*: not with"):
        wire(load(tmp_path / "one"), Ancre(), saved=tmp_path / "one")
    with pytest.raises(ValueError, match=r"none: no weights with model\.topology\.c$"):
        wire(load(tmp_path / "none"), KEEP, saved=tmp_path / "none")
    with pytest.raises(ValueError, match=r"nowhere: no weights with model\.topology\.c$"):
        wire(load(tmp_path / "none"), KEEP, saved=tmp_path / "nowhere")


def test_a_layer_called_by_itself():
    model = wired()
    with pytest.raises(ValueError, match=r"^a wired LlamaDecoderLayer was called by itself, outside of its decoder"):
        model.model.layers[0](torch.zeros(1, 2, 16))


def test_a_model_that_leaves_layers_out():
    model = wired()
    model.config.num_hidden_layers = 2  # where its own loop stops
    with pytest.raises(ValueError, match=r"^LlamaModel ran 2 of 4 layers: wired for all$"):
        model(text())


def test_a_layer_that_returns_more_than_its_states():
    model = plain()
    wire(model, Cascaded())
    model.model.layers[1].register_forward_hook(lambda layer, args, out: (out, None), prepend=True)
    with pytest.raises(ValueError, match=r"^LlamaDecoderLayer returned tuple, not its hidden states alone$"):
        model(text())
