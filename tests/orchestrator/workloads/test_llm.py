"""The workload llm: its spec, its estimate against what is really kept, and that it learns."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from pydantic import ValidationError

from analysis import names
from orchestrator.pretrain.tokens import prepare
from orchestrator.workloads.base import Place
from orchestrator.workloads.llm import Spec

SMALL = {
    "model": {"width": 32, "ffn_width": 64, "depth": 3, "heads": 2, "vocab_size": 400},
    "topology": {"kind": "ancre", "temperature": 0.1},
    "optim": {"kind": "adamw", "lr": 0.01},
    "data": {"kind": "python-docs"},
    "text": {"sequence": 32},
    "train": {"steps": 150, "batch": 8, "eval_tokens": 4000},
}


def small(**sections) -> Spec:
    return Spec(**{name: value | sections.get(name, {}) for name, value in SMALL.items()})


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def test_it_learns_real_english_and_a_topology(tmp_path, cache):
    spec = small()
    spec.prepare(cache)
    rows = list(spec.rows(Place(tmp_path, cache)))
    assert {name for row in rows for name in row.metrics} == set(Spec.metrics) - {names.MFU}  # no CPU's peak is known
    split = prepare(spec.data, spec.text, 400, cache)
    counts = np.bincount(split.train.tokens(0), minlength=400) + 1
    unigram = np.exp(-np.log(counts / counts.sum())[split.held_out.tokens(0)[:4000]].mean())
    assert rows[-1].metrics["val/perplexity"] < 0.75 * unigram
    p = np.array(rows[-1].topology["decoder"]["p"])
    assert p.sum(0)[1:] == pytest.approx(1)
    assert abs(p[:3, 3] - 1 / 3).max() > 0.02


def test_the_estimate_is_what_is_kept(tmp_path, cache):
    spec = small(train={"steps": 3, "batch": 2, "checkpoint_every": 1, "eval_tokens": 64})
    estimate = spec.estimate()
    list(spec.rows(Place(tmp_path, cache)))
    assert estimate.params == spec.model.num_params()
    assert estimate.topology_params == 6
    assert estimate.flops == 3 * 2 * 32 * spec.model.flops_per_token(32)
    saved = sum(file.stat().st_size for file in tmp_path.rglob("*.distcp"))
    assert saved <= estimate.disk * 1.1
    assert saved >= estimate.disk * 0.6  # two or three checkpoints, as the best is or is not among the last two
    assert small(train={"steps": 3}).estimate().disk == 0


def test_the_estimated_memory_grows_as_it_should():
    one = small(train={"batch": 4}).estimate().memory
    more = small(train={"batch": 8}).estimate().memory
    half = small(train={"batch": 8, "micro_batch": 4}).estimate().memory
    lean = small(train={"batch": 8, "activation_checkpointing": True}).estimate().memory
    mixed = small(train={"batch": 8, "precision": "bf16-mixed"}).estimate().memory
    assert one == half < mixed < more
    assert lean < more
    weights = 4 * 4 * (small().estimate().params + 6)  # weights, gradients and two moments in float32
    assert weights < one
    assert more - weights == 2 * (one - weights)


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        ("model", {"depth": 0}, "model.depth: Input should be greater than or equal to 1"),
        ("model", {"heads": 3}, "model: Value error, 3 heads do not divide width 32; the nearest that does is 2"),
        ("model", {"vocab_size": 100}, "Value error, model.vocab_size 100 is below 257"),
        ("topology", {"kind": "anchre"}, "topology: Value error, no topology of kind 'anchre'; did you mean 'ancre'?"),
        ("optim", {"lr": -1}, "optim.lr: Input should be greater than 0"),
        ("optim", {"kind": "galore", "rank": 32}, "Value error, an optimizer with no matrix to project: rank 32"),
        ("data", {"kind": "nothing"}, "data: Value error, no data of kind 'nothing'"),
        ("text", {"val_fraction": 0}, "text.val_fraction: Input should be greater than 0"),
        ("text", {"packing": "all"}, "text.packing: Input should be 'concat' or 'none'"),
        ("train", {"batch": 8, "micro_batch": 3}, "train: Value error, micro_batch 3 does not divide batch 8; 2 does"),
        (
            "train",
            {"precision": "fp16"},
            "train.precision: Input should be 'fp32', 'bf16-mixed', 'pure-bf16' or 'bf16-stochastic'",
        ),
        (
            "train",
            {"clip": 1, "layerwise": True},
            "clip 1 needs the whole gradient, which layerwise",
        ),
        ("train", {"micro_batch": 4, "layerwise": True}, "layerwise = true steps once for each micro_batch; 4 is not"),
        ("train", {"checkpoint_segment": 2}, "checkpoint_segment is for activation_checkpointing = true"),
        (
            "train",
            {"checkpoint_segment": 2, "activation_checkpointing": True},
            "train.checkpoint_segment: of topology 'ancre', later steps read h_1, which is inside a segment of 2",
        ),
        ("train", {"stages": 4}, "4 pipeline stages need as many blocks, the network has 3"),
        ("train", {"stages": 2, "compile": True}, "compile is not for pipelines; stages is 2"),
        ("train", {"warmup": 2}, "train.warmup: Input should be less than or equal to 1"),
        ("train", {"stepz": 2}, "train.stepz: Extra inputs are not permitted"),
    ],
)
def test_a_wrong_trial_is_refused_in_one_line(section, values, message):
    with pytest.raises(ValidationError) as caught:
        small(**{section: values})
    (error,) = caught.value.errors()
    line = f"{'.'.join(map(str, error['loc']))}: {error['msg']}"
    assert message in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("train", "workers", "message"),
    [
        ({"batch": 8}, 3, "train.batch 8 is not a multiple of 3 workers; 2 would do"),
        (
            {"batch": 12, "micro_batch": 4},
            2,
            "train.batch 12 is not a multiple of 2 workers of micro_batch 4; 1 would do",
        ),
        ({"batch": 8}, 9, "should be at most train.batch 8, got 9"),
        ({"stages": 2}, 3, "should be a multiple of train.stages, 2, got 3"),
        ({"layerwise": True}, 2, "should be 1 where train.layerwise steps before workers share gradients, got 2"),
    ],
)
def test_workers_that_cannot_share_a_trial_are_refused(train, workers, message):
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        small(train=train).check_workers(workers)


def test_a_worker_whose_share_is_below_a_micro_batch_has_it_at_once():
    trial = small(train={"batch": 8, "micro_batch": 4})
    trial.check_workers(4)
    assert trial.estimate_on(4).memory == small(train={"batch": 8}).estimate_on(4).memory


def test_what_only_new_trials_have_leaves_the_names_of_earlier_ones():
    """A trial's identity is the hash of its fields: one that is at its default, and was added later, is not written."""
    added = {"checkpoint_segment", "sharding", "stages", "layerwise", "compile", "depths_every", "peak_flops"}
    assert not added & set(small().model_dump()["train"])
    assert small(train={"compile": True}).cell != small().cell


def test_a_topology_that_cannot_connect_the_depth_is_refused():
    with pytest.raises(ValidationError, match="4"):
        Spec(**(SMALL | {"topology": {"kind": "shortcuts", "shortcuts": "0:4"}}))


def test_a_trial_is_the_same_after_json():
    spec = small()
    again = Spec.model_validate_json(spec.model_dump_json())
    assert again == spec
    assert again.id == spec.id
    assert small(train={"warmup": 0.2}).cell != spec.cell
    assert spec.with_seed(3).cell == spec.cell


def test_planning_a_trial_imports_nothing_heavy():
    code = (
        "import json, sys; from orchestrator.workloads.llm import Spec; Spec(**json.loads(sys.argv[1])).estimate();"
        "print(sorted({'torch', 'numpy', 'tokenizers', 'pyarrow', 'ray', 'mlflow'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code, json.dumps(SMALL)], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
