"""Every study that ships validates, plans, and compares fairly; the paper's presets are those of its tables."""

import shlex
from pathlib import Path

import pytest

from analysis import published
from orchestrator.cli import build_parser
from orchestrator.study import study_file
from orchestrator.study.plan import plan
from orchestrator.study.spec import Study
from orchestrator.workloads.base import Place
from orchestrator.workloads.dit import Spec as Dit
from orchestrator.workloads.llm import Spec as Llm

PAPER = tuple(f"paper_table{number}" for number in (1, 2, 4, 5, 6, 7, 10))
LLAMA = (*PAPER, "llama_60m_frozen", "llama_60m_lr_bracket", "llama_60m_temperature")
DIT = ("dit_digits", "dit_temperature", "paper_table3")
SHIPPED = (*LLAMA, *DIT, "demo", "demo_linear", "depth_scaling", "lnn_shortcuts_3layer", "lnn_shortcuts_4layer")
# Table 8 and GaLore's setup: width -> steps, micro-batch, rate of AdamW, rate and rank of GaLore.
TABLE_8 = {
    512: (10_000, 256, 5e-3, 1e-2, 128),
    768: (20_000, 128, 1e-3, 5e-2, 256),
    1024: (60_000, 64, 1e-3, 5e-2, 256),
    2048: (100_000, 16, 5e-4, 5e-3, 512),
}


# What makes a study at toy size smaller still.
FEWER = {
    "paper_table6": ["train.rounds=2"],
    "paper_table3": ["train.steps=2", "evaluate.samples=20", "evaluate.sampling.steps=2"],
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def test_all_of_them_ship() -> None:
    assert set(SHIPPED) <= set(study_file.shipped())


@pytest.mark.parametrize("name", SHIPPED)
def test_study_plans_and_says_what_it_may_refute(name: str) -> None:
    study = Study.read(name)
    assert study.name == name
    assert study.hypothesis.endswith(".") and ". " not in study.hypothesis
    assert plan(study).num_trials == plan(study).num_cells * len(study.seeds)
    assert Study.parse(study.to_toml()) == study


@pytest.mark.parametrize("name", SHIPPED)
def test_every_comparison_has_both_readings_and_tunes_its_arms_equally(name: str) -> None:
    made = plan(Study.read(name))
    assert not [note for note in made.notes if "not tuned equally" in note]
    readings = [cell.trial.topology.inner_residual for cell in made.cells if cell.trial.topology.kind == "ancre"]
    assert readings.count("keep") == readings.count("drop") > 0
    rates = {side.arm: {cell.trial.optim.lr for cell in made.cells if cell.arm == side.arm} for side in made.sides}
    if not name.startswith("paper"):  # there each size has its own
        assert len(set(map(frozenset, rates.values()))) == 1


@pytest.mark.parametrize("name", [name for name in LLAMA if name != "paper_table6"])
def test_paper_presets_are_those_of_appendix_e_4(name: str) -> None:
    study = Study.read(name)
    assert study.resources.gpus == 1
    for cell in plan(study).cells:
        trial = cell.trial
        assert isinstance(trial, Llm)
        steps, micro_batch, *rates, rank = TABLE_8[trial.model.width]
        train, text, optim = trial.train, trial.text, trial.optim
        assert (train.steps, train.micro_batch, train.batch) == (steps, micro_batch, 512)
        assert (train.warmup, train.final_lr, train.clip) == (0.1, 0.1, 0.0)
        assert (text.sequence, text.packing, train.precision, trial.data.kind) == (256, "none", "pure-bf16", "shards")
        assert train.eval_tokens >= 10_000_000
        assert optim.betas == (0.9, 0.999)
        if optim.kind == "galore":
            assert (optim.rank, optim.update_gap, optim.scale, optim.lr) == (rank, 200, 0.25, rates[1])
        else:
            assert (optim.kind, optim.eps, optim.weight_decay) == ("adamw", 1e-8, 0.0)
            assert "optim.lr" in cell.axes or optim.lr == rates[0]
        if trial.topology.kind == "ancre" and "topology.temperature" not in cell.axes:
            assert trial.topology.temperature == 0.01


def test_each_published_row_has_its_configurations_and_each_topology_of_ours_a_row() -> None:
    for name in PAPER:
        specs = [cell.trial.model_dump(mode="json") for cell in plan(Study.read(name)).cells]
        table = published.table(str(Study.read(name).published))
        for size in {column.size for column in table.columns}:
            of_size = [spec for spec in specs if published.is_size(size, spec)]
            assert all(any(row.matches(spec) for spec in of_size) for row in table.rows), f"{name}, {size}"
        ours = [spec for spec in specs if name != "paper_table4" or spec["topology"]["kind"] == "ancre"]
        assert all(sum(row.matches(spec) for row in table.rows) == 1 for spec in ours), name


def test_overheads_are_measured_as_in_table_6() -> None:
    """Batches and counts of coefficients are the table's."""
    rows = published.table("table6").rows
    found = set()
    for cell in plan(Study.read("paper_table6")).cells:
        trial = cell.trial
        spec, first = trial.model_dump(mode="json"), trial.model.width == 1024
        assert trial.train.batch == (64 if first else 32)
        (row,) = (row for row in rows if row.matches(spec))
        printed = str(row.values[0 if first else 4])
        count = float(printed.replace("k", "e3"))
        assert trial.estimate().topology_params == pytest.approx(count, abs=999 if "k" in printed else 0)
        found.add((row.label, first))
    assert len(found) == 2 * len(rows)


def toy_command(name: str) -> list[str]:
    """The words behind `ancre start` in the comment of a study."""
    text = (study_file.SHIPPED / f"{name}.toml").read_text()
    comment = " ".join(
        line.removeprefix("#").strip().removesuffix("\\") for line in text.splitlines() if line[:1] == "#"
    )
    command = shlex.split(comment[comment.index("ancre start") :])
    return command[2:]


def test_table_3_is_trained_and_judged_as_in_appendix_e_4() -> None:
    study = Study.read("paper_table3")
    assert study.seeds == (42,)
    for cell in plan(study).cells:
        trial = cell.trial
        assert isinstance(trial, Dit)
        train, judged = trial.train, trial.evaluate
        assert (train.steps, train.batch, train.precision) == (400_000, 256, "bf16-mixed")
        assert (train.warmup, train.final_lr, train.clip, train.label_dropout) == (0.0, 1.0, 0.0, 0.1)
        assert (train.ema, trial.optim.kind, trial.optim.lr, trial.optim.weight_decay) == (0.9999, "adamw", 1e-4, 0.0)
        sampling = judged.sampling
        assert (judged.samples, sampling.method, sampling.steps) == (50_000, "ddpm", 250)
        assert (sampling.cfg, sampling.guidance_channels) == (1.5, 3)
        assert trial.topology.kind == "cascaded" or trial.topology.temperature == 0.1
        assert trial.model.num_params() in (32_865_056, 130_315_808)  # 33M and 130M of 2212.09748, Table 1
    specs = [cell.trial.model_dump(mode="json") for cell in plan(study).cells]
    rows = published.table("table3").rows
    assert all(sum(row.matches(spec) for row in rows) == 2 for spec in specs)  # without guidance and with it
    assert all(any(row.matches(spec) for spec in specs) for row in rows)
    fewer = [{**spec, "evaluate": {**spec["evaluate"], "samples": 10_000}} for spec in specs]
    assert not any(row.matches(spec) for row in rows for spec in fewer)  # their FID is another


@pytest.mark.parametrize("name", [*PAPER, "paper_table3"])
def test_it_runs_to_the_end_at_toy_size_as_its_comment_says(name: str, cache: Path, tmp_path: Path) -> None:
    """Every planned trial, with fewer steps still."""
    arguments = build_parser().parse_args(["start", *toy_command(name)])
    fewer = FEWER.get(name, ["train.steps=2", "train.eval_tokens=200"])
    study = Study.read(*arguments.study, [*arguments.set, *fewer], seeds=[0])
    made = plan(study)
    assert not [note for note in made.notes if "is not there yet" in note or "tuned equally" in note]
    assert study.name != name and study.resources.gpus == 0
    kinds = set()
    for _, _, trial in made.trials():
        trial.prepare(cache)
        rows = [*trial.rows(Place(tmp_path / trial.id, cache))]
        assert rows[-1].step == trial.total_steps and trial.default_metric in rows[-1].metrics
        kinds.add((trial.topology.kind, trial.optim.kind))
    every = {(cell.trial.topology.kind, cell.trial.optim.kind) for cell in plan(Study.read(name)).cells}
    assert kinds == every


def test_case_study_is_that_of_appendix_e_1() -> None:
    for name, depth in (("lnn_shortcuts_3layer", 3), ("lnn_shortcuts_4layer", 4)):
        for cell in plan(Study.read(name)).cells:
            model = cell.trial.model
            assert (model.depth, model.width, model.rank, model.init_std) == (depth, 50, 4, 0.01)
            assert (cell.trial.optim.kind, cell.trial.optim.lr) == ("sgd", 1e-3)


def test_demo_is_the_whole_comparison() -> None:
    study = Study.read("demo")
    cells = [(cell.arm, *cell.axes.values()) for cell in plan(study).cells]
    assert [sum(arm == name for arm, *_ in cells) for name in ("cascaded", "ancre_drop", "ancre_keep")] == [2, 8, 8]
    assert study.seeds == (0, 1, 2)


def test_missing_corpus_is_noted() -> None:
    assert (
        "data/c4-t5-base is not there yet; it must be when the study starts" in plan(Study.read("paper_table10")).notes
    )
