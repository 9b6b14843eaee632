"""The loop against training written out in the test, against itself resumed, and what it says when numbers break."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.nn.functional import cosine_similarity, cross_entropy

from analysis import names
from orchestrator.errors import Diverged, InputError
from orchestrator.pretrain.rate import rate
from orchestrator.pretrain.sequences import Pass, Stream
from orchestrator.pretrain.sharded import read_network
from orchestrator.pretrain.spec import TrainSpec
from orchestrator.pretrain.tokens import prepare


def tokens_of(trial, cache):
    return prepare(trial.data, trial.text, trial.model.vocab_size, cache)


def final_network(trial, folder):
    (checkpoint,) = folder.glob("checkpoints/step-*")
    network = trial.model.build(trial.topology)
    read_network(checkpoint, network)
    return network


def test_the_rate_rises_to_its_peak_and_falls_to_its_end():
    train = TrainSpec(steps=21, batch=1, warmup=0.2, final_lr=0.1)
    rates = [rate(step, train) for step in range(21)]
    assert rates[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert rates[12] == pytest.approx(0.55)  # half way between steps 4 and 20
    assert rates[20] == pytest.approx(0.1)
    assert all(later < earlier for earlier, later in pairwise(rates[4:]))
    assert rate(0, TrainSpec(steps=1, batch=1)) == 1
    assert [rate(step, TrainSpec(steps=2, batch=1, warmup=1)) for step in (0, 1)] == [0.5, 1]


@pytest.mark.parametrize("packing", ["concat", "none"])
def test_losses_are_those_of_plain_training(packing, trial, run, cache):
    """AdamW on the mean loss of all tokens of a batch, one document at a time, in float64."""
    spec = trial(text={"packing": packing}, train={"steps": 4, "warmup": 0.5, "micro_batch": 2})
    rows = list(run(spec))
    torch.manual_seed(spec.seed)
    network = spec.model.build(spec.topology).double()
    optimizer = torch.optim.AdamW(network.parameters(), betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
    stream = Stream(tokens_of(spec, cache).train, 16, packing, spec.seed)
    for step, row in enumerate(rows):
        documents = [torch.from_numpy(window[window >= 0]) for window in stream.windows(step * 6, 6)]
        losses = [cross_entropy(network(d[None, :-1])[0], d[1:], reduction="none") for d in documents]
        loss = torch.cat(losses).mean()
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * rate(step, spec.train)
        optimizer.zero_grad()
        loss.backward()
        norm = math.sqrt(sum(p.grad.square().sum().item() for p in network.parameters()))
        optimizer.step()
        assert row.metrics["train/loss"] == pytest.approx(loss.item(), rel=1e-5)
        assert row.metrics["train/gradient_norm"] == pytest.approx(norm, rel=1e-4)
        assert row.metrics["train/lr"] == pytest.approx(0.01 * rate(step, spec.train))


@pytest.mark.parametrize("packing", ["concat", "none"])
def test_perplexity_is_exact_over_every_held_out_token(packing, trial, run, cache, tmp_path):
    spec = trial(text={"packing": packing}, train={"steps": 3, "batch": 4, "checkpoint_every": 3})
    *_, last = run(spec)
    network, held_out = final_network(spec, tmp_path / "trial").double(), tokens_of(spec, cache).held_out
    text = np.array([held_out.end, *held_out.tokens(0)], np.int64)
    if packing == "concat":
        pieces = [text[start : start + 17] for start in range(0, len(text) - 1, 16)]
    else:
        pieces = [text[1:][start:stop][:17] for start, stop in pairwise(held_out.starts(0))]
    losses = []
    for piece in map(torch.from_numpy, pieces):
        losses.append(cross_entropy(network(piece[None, :-1])[0], piece[1:], reduction="none"))
    every = torch.cat(losses)
    if packing == "concat":
        assert len(every) == held_out.side.tokens
    assert last.metrics["val/loss"] == pytest.approx(every.mean().item(), rel=1e-6)
    assert last.metrics["val/perplexity"] == pytest.approx(every.mean().exp().item(), rel=1e-5)


def test_reports_come_when_due_and_the_last_step_evaluates(trial, run):
    spec = trial(train={"log_every": 3, "eval_every": 4, "eval_tokens": 40})
    rows = list(run(spec))
    assert [row.step for row in rows] == [3, 4, 6, 8, 9, 10]
    evaluated = [row for row in rows if "val/perplexity" in row.metrics]
    assert [row.step for row in evaluated] == [4, 8, 10]
    assert [row.step for row in rows if row.topology] == [4, 8, 10]
    assert evaluated[-1].topology["decoder"]["depth"] == 2
    assert spec.total_steps == 10
    assert all(row.metrics["train/tokens_per_second"] > 0 for row in rows)


def test_the_train_loss_is_the_mean_since_the_last_report(trial, run):
    """Seven steps: windows without padding, so every step has as many tokens."""
    every = [row.metrics["train/loss"] for row in run(trial(train={"steps": 7}), "every")]
    third = [row.metrics["train/loss"] for row in run(trial(train={"steps": 7, "log_every": 3}), "third")]
    assert third == pytest.approx([np.mean(every[:3]), np.mean(every[3:6]), every[6]], rel=1e-12)


def test_the_seed_decides_the_run(trial, run, steady):
    one, same, other = (
        [steady(row) for row in run(trial(seed=seed), folder)] for seed, folder in ((1, "a"), (1, "b"), (2, "c"))
    )
    assert one == same
    assert one[0] != other[0]


@pytest.mark.parametrize("packing", ["concat", "none"])
@pytest.mark.parametrize("stop_after", [3, 5, 8, 9])
def test_a_resumed_run_is_the_uninterrupted_run(packing, stop_after, trial, run, steady):
    """Reports, checkpoints and passes over the text all end at different steps; every number must still be equal."""
    settings = {"steps": 24, "log_every": 2, "eval_every": 5, "checkpoint_every": 3, "micro_batch": 2}
    spec = trial(text={"packing": packing}, train=settings)
    straight = {row.step: steady(row) for row in run(spec, "straight")}
    first = []
    rows = run(spec)
    while len(first) < stop_after:
        first.append(steady(next(rows)))
    rows.close()
    second = [steady(row) for row in run(spec)]
    assert 0 < second[0][0] <= first[-1][0] + 1
    assert first == [straight[step] for step, *_ in first]
    assert second == [straight[step] for step, *_ in second]
    assert {step for step, *_ in first + second} == set(straight)


def test_a_finished_run_reports_its_last_step_again(trial, run, steady):
    spec = trial(train={"checkpoint_every": 4})
    rows = [steady(row) for row in run(spec)]
    assert [steady(row) for row in run(spec)] == rows[-1:]


@pytest.mark.parametrize("about", [None, {}, {"progress": {"step": 99}}, {"progress": {"step": 3, "other": 1}}])
def test_a_record_that_was_changed_by_hand_is_refused(about, trial, run, tmp_path):
    spec = trial(train={"steps": 3, "checkpoint_every": 3})
    list(run(spec))
    (commit,) = tmp_path.glob("trial/checkpoints/step-*/commit.json")
    commit.write_text(json.dumps(json.loads(commit.read_text()) | {"about": about}))
    with pytest.raises(InputError, match="step-00000003: its record was changed by hand; delete that folder"):
        list(run(spec))


def test_recomputing_activations_changes_no_loss(trial, run):
    kept, recomputed = (
        [row.metrics["train/loss"] for row in run(trial(train={"activation_checkpointing": on}), str(on))]
        for on in (False, True)
    )
    assert recomputed == pytest.approx(kept, rel=1e-6)


def test_bfloat16_keeps_weights_and_topology_in_float32(trial, run, tmp_path):
    spec = trial(train={"precision": "bf16-mixed", "checkpoint_every": 10})
    mixed = [row.metrics["train/loss"] for row in run(spec)]
    full = [row.metrics["train/loss"] for row in run(trial(), "full")]
    assert mixed == pytest.approx(full, rel=0.01)
    assert mixed != full
    assert {p.dtype for p in final_network(spec, tmp_path / "trial").parameters()} == {torch.float32}


def test_clipping_bounds_the_step(trial, run, tmp_path):
    def change(clip: float) -> tuple[float, float]:
        folder = f"clip-{clip}"
        spec = trial(
            optim={"kind": "sgd", "lr": 0.5},
            train={"steps": 1, "warmup": 0, "checkpoint_every": 1, "clip": clip},
        )
        (row,) = run(spec, folder)
        torch.manual_seed(spec.seed)
        before, after = spec.model.build(spec.topology), final_network(spec, tmp_path / folder)
        pairs = zip(before.parameters(), after.parameters(), strict=True)
        return math.sqrt(sum((b - a).square().sum().item() for b, a in pairs)), row.metrics["train/gradient_norm"]

    free, norm = change(0)
    assert free == pytest.approx(0.5 * norm, rel=1e-3)
    assert change(norm * 2)[0] == pytest.approx(free, rel=1e-6)
    clipped, unclipped_norm = change(norm / 10)
    assert clipped == pytest.approx(free / 10, rel=1e-3)
    assert unclipped_norm == pytest.approx(norm)


@pytest.mark.parametrize("precision", ["fp32", "pure-bf16", "bf16-stochastic"])
@pytest.mark.parametrize("kind", ["adamw", "galore", "muon", "sgd"])
def test_steps_inside_the_backward_pass_are_the_same_steps(kind, precision, trial, run, steady):
    """To the bit, resumed too; only random rounding draws in another order."""
    optim = {"kind": kind, "lr": 0.01} | ({"rank": 4, "update_gap": 3} if kind == "galore" else {})
    settings = {"steps": 6, "log_every": 1, "checkpoint_every": 2, "precision": precision}
    rows = {
        layerwise: list(run(trial(optim=optim, train=settings | {"layerwise": layerwise}), f"{layerwise}"))
        for layerwise in (False, True)
    }
    losses = {layerwise: [row.metrics[names.TRAIN_LOSS] for row in found] for layerwise, found in rows.items()}
    assert losses[True] == (pytest.approx(losses[False], rel=1e-3) if precision == "bf16-stochastic" else losses[False])
    for row in (rows[True][0], rows[False][0]):
        assert row.metrics[names.MEMORY_GRADIENTS] == row.metrics[names.MEMORY_GRADIENTS + names.ESTIMATED]
    stopped = run(trial(optim=optim, train=settings | {"layerwise": True}), "stopped")
    [next(stopped) for _ in range(5)]
    stopped.close()
    resumed = list(run(trial(optim=optim, train=settings | {"layerwise": True}), "stopped"))
    assert [steady(row) for row in resumed] == [steady(row) for row in rows[True][3:]]


@pytest.mark.parametrize(
    ("precision", "weights", "moments"), [("pure-bf16", 2, 2), ("bf16-stochastic", 2, 4), ("bf16-mixed", 4, 4)]
)
def test_memory_is_what_the_precision_says(precision, weights, moments, trial, run):
    spec = trial(topology={"kind": "cascaded"}, train={"steps": 1, "precision": precision})
    (row,) = run(spec)
    count, metrics = spec.model.num_params(), row.metrics
    assert metrics[names.MEMORY_PARAMETERS] == metrics[names.MEMORY_GRADIENTS] == count * weights
    assert metrics[names.MEMORY_OPTIMIZER] == pytest.approx(2 * count * moments, rel=0.005)  # and counts of steps
    for name in (names.MEMORY_PARAMETERS, names.MEMORY_GRADIENTS, names.MEMORY_OPTIMIZER):
        assert metrics[name + names.ESTIMATED] == pytest.approx(metrics[name], rel=0.005)


def test_coefficients_are_float32_in_every_precision(trial, run, tmp_path):
    spec = trial(train={"steps": 2, "precision": "pure-bf16", "checkpoint_every": 2})
    list(run(spec))
    network = spec.model.build(spec.topology).to(torch.bfloat16)
    read_network(tmp_path / "trial" / "checkpoints" / "step-00000002", network)
    kinds = {name: p.dtype for name, p in network.named_parameters()}
    assert kinds.pop("stack.topology.c") == torch.float32
    assert {*kinds.values()} == {torch.bfloat16}


@pytest.mark.filterwarnings("ignore")  # torch.compile reads code of torch's own that is deprecated
def test_compiled_blocks_train_alike(trial, run):
    settings = {"steps": 3, "log_every": 1, "depths_every": 2}
    plain, compiled = (list(run(trial(train=settings | {"compile": on}), f"compile-{on}")) for on in (False, True))
    for one, other in zip(plain, compiled, strict=True):
        assert other.metrics[names.TRAIN_LOSS] == pytest.approx(one.metrics[names.TRAIN_LOSS], rel=1e-4)
        assert (one.depths is None) == (other.depths is None)
    assert compiled[1].depths[names.DEPTH_STATE_RMS] == pytest.approx(plain[1].depths[names.DEPTH_STATE_RMS], rel=1e-4)


def test_each_depth_is_told_as_it_is(trial, run, tmp_path, cache):
    """Against a forward written out, of the network that the step before had left."""
    settings = {"steps": 2, "log_every": 1, "depths_every": 2, "checkpoint_every": 1}
    spec = trial(topology={"kind": "ancre", "temperature": 0.1}, train=settings)
    rows = list(run(spec))
    assert rows[0].depths is None
    found = rows[1].depths
    network = spec.model.build(spec.topology)
    read_network(tmp_path / "trial" / "checkpoints" / "step-00000001", network)
    windows = torch.from_numpy(Stream(tokens_of(spec, cache).train, 16, "concat", 0).windows(6, 6))
    states, outputs = [], []
    for block in network.stack.blocks:
        block.register_forward_pre_hook(lambda _, args: states.append(args[0]))
        block.register_forward_hook(lambda _, args, out: outputs.append(out))
    network.stack.register_forward_hook(lambda _, args, out: states.append(out))
    loss = cross_entropy(network(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())
    loss.backward()
    assert found[names.DEPTH_STATE_RMS] == pytest.approx([h.square().mean().sqrt().item() for h in states], rel=1e-5)
    assert found[names.DEPTH_OUTPUT_RMS] == pytest.approx([h.square().mean().sqrt().item() for h in outputs], rel=1e-5)
    cosines = [cosine_similarity(a, b, dim=-1).mean().item() for a, b in pairwise(states)]
    assert found[names.DEPTH_COSINE] == pytest.approx(cosines, rel=1e-5)
    norms = [torch.cat([p.grad.flatten() for p in block.parameters()]).norm().item() for block in network.stack.blocks]
    assert found[names.DEPTH_GRADIENT_NORM] == pytest.approx(norms, rel=1e-4)


def test_galore_compat_is_the_sum_of_batch_means_over_one_batch_more(trial, run, tmp_path, cache):
    spec = trial(text={"packing": "none"}, train={"steps": 1, "batch": 4, "checkpoint_every": 1})
    (row,) = run(spec)
    network, held_out = final_network(spec, tmp_path / "trial"), tokens_of(spec, cache).held_out
    every = Pass(held_out, 16, "none")
    means = []
    for start in range(0, len(every), 4):
        part = torch.from_numpy(every.windows(np.arange(start, min(start + 4, len(every)))))
        logits = network(part[:, :-1].clamp(min=0)).flatten(0, 1)
        means.append(cross_entropy(logits, part[:, 1:].flatten(), ignore_index=-1).item())
    assert row.metrics[names.PERPLEXITY_GALORE_COMPAT] == pytest.approx(
        math.exp(sum(means) / (len(means) + 1)), rel=1e-5
    )


def test_the_share_of_the_peak_follows_from_speed_and_flops(trial, run):
    spec = trial(train={"steps": 2, "log_every": 1, "peak_flops": 1e9})
    for row in run(spec):
        flops = row.metrics[names.TOKENS_PER_S] * spec.model.flops_per_token(16)
        assert row.metrics[names.MFU] == pytest.approx(flops / 1e9)


def test_a_run_that_diverges_says_when_and_where(trial, run):
    spec = trial(optim={"kind": "adamw", "lr": 1e30}, train={"warmup": 0})
    rows = run(spec)
    assert next(rows).step == 1
    with pytest.raises(Diverged) as caught:
        list(rows)
    assert caught.value.step == 2
    assert caught.value.where == "the output of stack.blocks.0.attention.query"


def test_the_first_weight_that_is_not_finite_is_named(trial, run, tmp_path, cache):
    from orchestrator.pretrain.checkpoint import Checkpoints
    from orchestrator.pretrain.loop import Loop
    from orchestrator.pretrain.parallel import Workers
    from orchestrator.pretrain.replica import Replica
    from orchestrator.pretrain.trained import next_token

    spec = trial()
    network, split = spec.model.build(spec.topology), tokens_of(spec, cache)
    network.stack.blocks[1].feed_forward.down.weight.data[3, 4] = math.nan
    loop = Loop(
        spec.train,
        Replica(network, Workers.here(), next_token),
        spec.optim.build(network),
        Stream(split.train, 16, "concat", 0),
        Pass(split.held_out, 16, "concat"),
        {},
        Workers.here(),
        Checkpoints(tmp_path, {}),
        flops=1.0,
        estimated={},
    )
    with pytest.raises(Diverged, match=r"the weight stack.blocks.1.feed_forward.down.weight is not finite at step 1"):
        next(loop.rows())
