"""Every study that ships validates, plans, and compares fairly; the paper's presets are those of its tables."""

import pytest

from orchestrator.study import study_file
from orchestrator.study.plan import plan
from orchestrator.study.spec import Study
from orchestrator.workloads.llm import Spec as Llm

SHIPPED = (
    "ablation_table5",
    "demo",
    "demo_linear",
    "depth_scaling",
    "fixed_and_frozen",
    "llama_60m_lr_bracket",
    "llama_60m_temperature",
    "llama_normalization",
    "llama_seeds",
    "lnn_shortcuts_3layer",
    "lnn_shortcuts_4layer",
)
# Table 8, FullPT: depth -> rate, steps, micro-batch.
TABLE_8 = {8: (5e-3, 10_000, 256), 12: (1e-3, 20_000, 128), 24: (1e-3, 60_000, 64)}


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
    if "seeds" not in name:  # there each size has its own
        assert len(set(map(frozenset, rates.values()))) == 1


@pytest.mark.parametrize("name", [name for name in SHIPPED if not name.startswith(("lnn", "demo", "depth"))])
def test_paper_presets_are_those_of_appendix_e_4(name: str) -> None:
    study = Study.read(name)
    assert study.resources.gpus == 1
    for cell in plan(study).cells:
        trial = cell.trial
        assert isinstance(trial, Llm)
        rate, steps, micro_batch = TABLE_8[trial.model.depth]
        assert (trial.train.steps, trial.train.micro_batch, trial.train.batch) == (steps, micro_batch, 512)
        assert (trial.train.warmup, trial.train.final_lr, trial.train.clip) == (0.1, 0.1, 0.0)
        assert (trial.text.sequence, trial.text.packing, trial.train.precision) == (256, "none", "bf16-mixed")
        assert (trial.optim.kind, trial.optim.betas, trial.optim.weight_decay) == ("adamw", (0.9, 0.999), 0.0)
        if "optim.lr" not in cell.axes:
            assert trial.optim.lr == rate
        if trial.topology.kind == "ancre" and "topology.temperature" not in cell.axes:
            assert trial.topology.temperature == 0.01


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
    assert "data/c4 is not there yet; it must be when the study starts" in plan(Study.read("llama_seeds")).notes
