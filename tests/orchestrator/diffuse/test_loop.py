"""The loop against training written out in the test, against itself resumed, and against two workers."""

import math

import numpy as np
import pytest
import torch
from picture_files import folder

from analysis import names
from models.diffusion import linear, training_loss
from orchestrator.diffuse.batches import Batches
from orchestrator.errors import Diverged, InputError
from orchestrator.image_shards.stream import Stream
from orchestrator.images.digits import Spec as Digits
from orchestrator.pretrain.rate import rate
from orchestrator.pretrain.sharded import read_network


def told(rows):
    """Rows as `several_workers.py` prints them."""
    return [[row.step, dict(row.metrics), row.topology, row.depths] for row in rows]


def written_out(spec, cache, steps: int):
    """Losses, gradient norms and rates of plain training in float32, the weights and their average after it."""
    torch.manual_seed(spec.seed)
    network = spec.model.build(spec.topology)
    optimizer = torch.optim.AdamW(network.parameters(), betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
    average = {name: p.detach().clone() for name, p in network.named_parameters()}
    batches = Batches(Stream(Digits().open(cache).train, spec.seed), 7, spec.train.label_dropout, 0, 1)
    told = []
    for step in range(steps):
        loss = training_loss(linear(), network, *batches.at(step)).mean()
        for group in optimizer.param_groups:
            group["lr"] = spec.optim.lr * rate(step, spec.train)
        optimizer.zero_grad()
        loss.backward()
        norm = math.sqrt(sum(p.grad.square().sum().item() for p in network.parameters()))
        optimizer.step()
        for name, p in network.named_parameters():
            average[name] = spec.train.ema * average[name] + (1 - spec.train.ema) * p.detach()
        told.append((loss.item(), norm, optimizer.param_groups[0]["lr"]))
    return told, network.state_dict(), average


def test_losses_weights_and_averages_are_those_of_plain_training(trial, run, cache, tmp_path):
    spec = trial(train={"steps": 4, "log_every": 1, "micro_batch": 1, "warmup": 0.5, "checkpoint_every": 4})
    rows = list(run(spec))
    expected, weights, average = written_out(spec, cache, 4)
    for row, (loss, norm, lr) in zip(rows, expected, strict=True):
        assert row.metrics[names.TRAIN_LOSS] == pytest.approx(loss, rel=1e-5)
        assert row.metrics["train/gradient_norm"] == pytest.approx(norm, rel=1e-4)
        assert row.metrics["train/lr"] == pytest.approx(lr)
    for under, expected_state in (("network", weights), ("extra.ema", average)):
        network = spec.model.build(spec.topology)
        read_network(tmp_path / "trial" / "checkpoints" / "step-00000004", network, under)
        for name, tensor in network.state_dict().items():
            torch.testing.assert_close(tensor, expected_state[name], rtol=1e-3, atol=1e-5)


def test_the_topology_is_trained_and_averaged(trial, run, tmp_path):
    spec = trial(train={"checkpoint_every": 8})
    *_, last = run(spec)
    averaged, trained = (spec.model.build(spec.topology) for _ in range(2))
    folder = tmp_path / "trial" / "checkpoints" / "step-00000008"
    read_network(folder, averaged, "extra.ema")
    read_network(folder, trained)
    c, mean = (network.topologies()["dit"].state_dict()["c"] for network in (trained, averaged))
    assert c.any() and mean.any() and not torch.equal(c, mean)
    np.testing.assert_allclose(last.topology["dit"]["c"], c[c != 0].tolist() if c.ndim > 1 else c.tolist(), rtol=1e-6)


@pytest.mark.parametrize("stop_after", [1, 3, 4])
def test_a_resumed_run_is_the_uninterrupted_run_to_the_bit(stop_after, trial, run, steady):
    """Reports, evaluations and checkpoints all end at different steps."""
    spec = trial(train={"steps": 9, "log_every": 2, "eval_every": 4, "checkpoint_every": 3, "micro_batch": 7})
    straight = {row.step: (steady(row.metrics), row.topology, row.files) for row in run(spec, "straight")}
    rows, first = run(spec), {}
    while len(first) < stop_after:
        row = next(rows)
        first[row.step] = steady(row.metrics), row.topology, row.files
    rows.close()
    second = {row.step: (steady(row.metrics), row.topology, row.files) for row in run(spec)}
    assert first | second == straight
    assert stop_after == 1 or min(second) > 2


def test_two_workers_follow_one(trial, run, spread, steady):
    """A batch of 7 is 3 and 4 images, in as many micro-batches; of 21 held-out and drawn images one has one more."""
    settings = {"eval_every": 4, "checkpoint_every": 4, "clip": 1.0, "micro_batch": 1}
    spec = trial(train=settings, evaluate={"samples": 21})
    alone = told(run(spec, "alone"))
    first, second = spread(spec, "pair")
    assert [steady(row[1]) for row in first] == [steady(row[1]) for row in second]
    assert [row[0] for row in first] == [row[0] for row in alone] == [2, 4, 6, 8]
    for (_, metrics, topology, _), (_, other, other_topology, _) in zip(first, alone, strict=True):
        losses = (names.TRAIN_LOSS, names.VAL_LOSS, "train/gradient_norm")
        assert {name: metrics[name] for name in losses if name in metrics} == pytest.approx(
            {name: other[name] for name in losses if name in other}, rel=1e-5
        )
        assert steady(metrics) == pytest.approx(steady(other), rel=1e-3, abs=1e-4)  # FID is a difference of large sums
        if topology:
            np.testing.assert_allclose(topology["dit"]["p"], other_topology["dit"]["p"], rtol=1e-5)
    one = told(run(spec, "pair"))  # from the checkpoint that two have written
    assert steady(one[-1][1]) == pytest.approx(steady(alone[-1][1]), rel=1e-3, abs=1e-4)


def test_bfloat16_trains_alike_and_keeps_weights_in_float32(trial, run, tmp_path):
    full = [row.metrics[names.TRAIN_LOSS] for row in run(trial(), "full")]
    spec = trial(train={"precision": "bf16-mixed", "checkpoint_every": 8})
    mixed = [row.metrics[names.TRAIN_LOSS] for row in run(spec)]
    assert mixed == pytest.approx(full, rel=0.02) and mixed != full
    network = spec.model.build(spec.topology).double()
    read_network(tmp_path / "trial" / "checkpoints" / "step-00000008", network, "extra.ema")
    assert any((p.float().bfloat16().double() != p).any() for p in network.parameters())


def test_recomputing_activations_changes_no_loss(trial, run):
    kept, recomputed = (
        [row.metrics[names.TRAIN_LOSS] for row in run(trial(train={"activation_checkpointing": on}), str(on))]
        for on in (False, True)
    )
    assert recomputed == pytest.approx(kept, rel=1e-6)


def test_reports_come_when_due_and_the_last_step_evaluates(trial, run):
    rows = list(run(trial(train={"log_every": 3, "eval_every": 4})))
    assert [row.step for row in rows] == [3, 4, 6, 8]
    judged = [row for row in rows if names.VAL_FID in row.metrics]
    assert [row.step for row in judged] == [row.step for row in rows if row.topology] == [4, 8]
    assert all(row.files[names.SAMPLES_FILE].startswith(b"\x89PNG") for row in judged)
    assert names.GUIDED + "fid" in judged[0].metrics and names.GUIDED + names.ACCURACY in judged[0].metrics
    metrics = {name for row in rows for name in row.metrics}
    assert metrics <= set(trial().metrics)


def test_memory_is_what_the_plan_says(trial, run):
    spec = trial(train={"steps": 1})
    (row,) = run(spec)
    whole = (names.MEMORY_PARAMETERS, names.MEMORY_GRADIENTS, names.MEMORY_OPTIMIZER, names.MEMORY_AVERAGES)
    for name in whole:
        assert row.metrics[name + names.ESTIMATED] == pytest.approx(row.metrics[name], rel=0.01)


def test_a_diverging_run_names_the_place(trial, run):
    with pytest.raises(Diverged, match="is not finite at step"):
        list(run(trial(optim={"lr": 1e30})))


def test_images_that_have_changed_are_refused(trial, run, monkeypatch):
    spec = trial(train={"checkpoint_every": 4})
    next(run(spec))
    list(run(spec))
    monkeypatch.setattr(Digits, "fingerprint", lambda self, cache: "another")
    with pytest.raises(InputError, match="its images have changed"):
        list(run(spec))


@pytest.mark.parametrize(
    ("count", "sections", "said"),
    [
        (12, {"num_classes": 4}, "model.num_classes is 4; the images have 3 classes"),
        (3, {}, "images: 3 real images to compare with; give at least 4, or val_fraction 0"),
        (30, {"val_fraction": 0.05}, "images: 2 real images to compare with; give at least 4, or val_fraction 0"),
        (
            12,
            {"reference": 16},
            "evaluate.reference: real images are 3 x 16 x 16 of 3 classes; what is drawn is 3 x 8 x 8 of 3 classes",
        ),
        (
            12,
            {"reference": "digits"},
            "evaluate.reference: real images are 1 x 8 x 8 of 10 classes; what is drawn is 3 x 8 x 8 of 3 classes",
        ),
    ],
)
def test_images_that_do_not_fit_are_refused_before_training(count, sections, said, trial, tmp_path):
    pictures = {"kind": "folder", "path": str(folder(tmp_path / "pictures", count)), "image_size": 8}
    reference = {16: pictures | {"image_size": 16}, "digits": {"kind": "digits"}}.get(sections.get("reference"))
    spec = trial(
        model={"channels": 3, "num_classes": sections.get("num_classes", 3)},
        images=pictures | {"val_fraction": sections.get("val_fraction", 0)},
        evaluate={"reference": reference},
    )
    with pytest.raises(InputError) as caught:
        spec.prepare(tmp_path / "cache")
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"train": {"micro_batch": 3}}, "micro_batch 3 does not divide batch 7; 1 does"),
        ({"evaluate": {"sampling": {"guidance_channels": 2}}}, "guidance_channels 2: the images have 1 channels"),
        ({"model": {"num_classes": 11}}, "model.num_classes is 11; the images have 10 classes"),
        ({"model": {"channels": 3}}, "model: channels and image_size say 3 x 8 x 8; the images are 1 x 8 x 8"),
        ({"images": {"kind": "folder", "path": "x"}}, "say 1 x 8 x 8; the images are 3 x 64 x 64"),
        ({"images": {"kind": "digits", "val_fraction": 1e-4}}, "val_fraction 0.0001: holds out 0 of 1797 images"),
        ({"evaluate": {"sampling": {"cfg": 1e300}}}, "less than or equal to 1000"),
        ({"evaluate": {"samples": 7}}, "greater than or equal to 8"),
        ({"train": {"ema": 1.0}}, "less than 1"),
        ({"evaluate": {"samples": 5001}}, "samples 5001 leave 1 in the last 5000; 5002 would do"),
        ({"evaluate": {"vae": "vae"}}, "evaluate.vae: only images.kind 'latents' are decoded, not 'digits'"),
        ({"images": {"kind": "latents", "path": "x"}}, "evaluate.vae: should name the autoencoder that decodes"),
    ],
)
def test_what_does_not_fit_is_refused_when_it_is_read(sections, said, trial):
    with pytest.raises(ValueError, match=said):
        trial(**sections)


def test_workers_that_cannot_share_a_batch_are_refused(trial):
    trial().check_workers(7)
    with pytest.raises(ValueError, match=r"train.batch 7 is not a multiple of 2 workers; 1 would do"):
        trial().check_workers(2)
