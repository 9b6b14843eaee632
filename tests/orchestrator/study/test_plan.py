"""A plan counts, names and prices what a study would run, and says what will not do, without starting anything."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.errors import InputError
from orchestrator.study.machines import Machine
from orchestrator.study.plan import DEVICES, TRIAL_SECONDS, plan
from orchestrator.study.spec import Study

TOY = 'name = "toy"\nworkload = "toys.bowl"\nseeds = [0, 7]\n[trial]\noptim = { kind = "sgd", lr = 0.1 }\n'
ARMS = '[arms]\ncascaded.topology.kind = "cascaded"\ndrop.topology = { kind = "ancre", inner_residual = "drop" }\n'
AXES = '[axes]\n"optim.lr" = [0.1, 0.2]\n"topology.temperature" = [0.01, 0.1, 1.0]\n"train.steps" = [5, 10]\n'
BIG = Machine(cpus=8, memory=10**12)


def study(more: str = ARMS + AXES, **tables: str) -> Study:
    return Study.parse(TOY + more + "".join(f"[{name}]\n{table}\n" for name, table in tables.items()), "s.toml")


def test_counts_of_a_grid() -> None:
    made = plan(study())
    assert [(side.arm, side.cells, side.trials) for side in made.sides] == [("cascaded", 4, 8), ("drop", 12, 24)]
    assert (made.num_cells, made.num_trials, len(made.cells), made.open) == (16, 32, 16, False)
    assert len(list(made.trials())) == 32


def test_cells_and_trials_are_named_as_their_specs_name_them() -> None:
    made = plan(study())
    assert all(cell.id == cell.trial.cell for cell in made.cells)
    named = [cell.trial_id(seed) for cell in made.cells for seed in made.study.seeds]
    assert named == [trial.id for _, _, trial in made.trials()]
    assert len(set(named)) == 32
    assert named[1].endswith("-s7")


def test_axes_reach_the_trial() -> None:
    for cell in plan(study()).cells:
        trial = cell.trial
        assert (trial.optim.lr, trial.train.steps) == (cell.axes["optim.lr"], cell.axes["train.steps"])
        assert trial.topology.kind == {"cascaded": "cascaded", "drop": "ancre"}[cell.arm]
        if cell.arm == "drop":
            assert trial.topology.temperature == cell.axes["topology.temperature"]


def test_names_are_the_same_in_another_process() -> None:
    """And under another hash seed: a resumed study finds its trials by name."""
    code = "import sys; from orchestrator.study.plan import plan; from orchestrator.study.spec import Study\n"
    code += "print(*[cell.id for cell in plan(Study.parse(sys.argv[1])).cells])"
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "7",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
    }
    shown = subprocess.run(
        [sys.executable, "-c", code, TOY + ARMS + AXES], env=environment, check=True, capture_output=True, text=True
    )
    assert shown.stdout.split() == [cell.id for cell in plan(study()).cells]


def test_only_content_decides_a_name() -> None:
    """However it is written, whatever it runs on, whatever arm it is in."""
    (one,) = plan(Study.parse(TOY)).cells
    (other,) = plan(
        Study(
            name="other",
            workload="toys.bowl",
            trial={"optim": {"lr": 0.1}, "optim.kind": "sgd", "train.steps": 10, "topology": {"kind": "cascaded"}},
            arms={"x": {"model": {"depth": 4}}},
            resources={"cpus": 3},
        )
    ).cells
    assert one.id == other.id


def test_totals_by_hand() -> None:
    """The toy: width 64, depth 4, so 256 parameters; 6 FLOPs each a step; 64 MiB a trial, 100 bytes left behind."""
    made = plan(study(), machines=[Machine(cpus=2, memory=10**12)])
    assert made.flops == pytest.approx(6 * 256 * (5 + 10) * (2 + 6) * 2)
    assert [side.params for side in made.sides] == [(256, 256), (256, 256)]
    assert [side.topology_params for side in made.sides] == [(0, 0), (10, 10)]
    assert (made.memory, made.disk) == (64 * 1024**2, 32 * 100)
    assert made.hours == pytest.approx((made.flops / (2 * DEVICES["cpu"].flops) + 32 * TRIAL_SECONDS / 2) / 3600)


def test_estimates_of_many_cells_are_those_of_a_sample() -> None:
    rates = '"optim.lr" = { center = 1, factor = 1.01, count = 900 }\n"optim.momentum" = [0.0, 0.5, 0.9]\n'
    made = plan(study(f"[axes]\n{rates}"))
    assert made.num_cells == 2700
    assert made.flops == pytest.approx(6 * 256 * 10 * 2700 * 2)


def test_gpu_hours_are_of_the_device_that_is_asked_for() -> None:
    made = plan(study(resources="gpus = 2.0\nworkers = 2\nconcurrent = 3"), device="a100")
    assert made.hours == pytest.approx(
        (made.flops / (DEVICES["a100"].flops * 3 * 2 * 2) + 32 * TRIAL_SECONDS / 3) / 3600
    )
    assert plan(study(resources="gpus = 1.0")).device == "h100"
    with pytest.raises(InputError, match="no device 'h10'; did you mean 'h100'"):
        plan(study(), device="h10")


def test_device_hours_are_told_for_each_arm_and_in_all() -> None:
    made = plan(Study.read("paper_table10"), device="a100", machines=[BIG])
    each = {side.arm: made.device_hours(side) for side in made.sides}
    assert sum(each.values()) == pytest.approx(made.hours * made.units)
    by_hand = 3 * (60_000 * 512 * 256 * 2.049e9 / DEVICES["a100"].flops + TRIAL_SECONDS) / 3600
    assert each["350m_keep"] == pytest.approx(by_hand, rel=0.01)
    words = {line.split()[0]: line.split() for line in made.text().splitlines() if line.startswith("350m")}
    assert words["350m_keep"][-3:] == [f"{float(f'{by_hand:.2g}'):g}", "19.9", "GB"]
    assert "GPU-hours (devices x hours)" in made.text()
    spread = plan(Study.read("paper_table10", ["resources.workers=2", "resources.concurrent=3"]), device="a100")
    assert spread.hours * 6 == pytest.approx(made.hours, rel=0.01)  # as much work on six devices


def test_memory_is_told_by_category_and_for_one_of_the_workers() -> None:
    arms = ["arms=1b_cascaded", "train.sharding=fsdp", "train.micro_batch=16"]
    one, eight = (plan(Study.read("paper_table2", [*arms, f"resources.workers={n}"])) for n in (1, 8))
    (weights,) = (side.memory_parts["memory/parameters"] for side in one.sides)
    assert weights == 2 * one.sides[0].params[0]
    parts = eight.sides[0].memory_parts
    assert parts["memory/parameters"] == parts["memory/gradients"] == weights // 8
    assert parts["memory/optimizer"] == 2 * weights // 8
    assert parts["memory/activations"] == one.sides[0].memory_parts["memory/activations"]
    assert "(1b_cascaded: parameters 335 MB, gradients 335 MB, optimizer state 670 MB" in " ".join(eight.text().split())


@pytest.mark.parametrize("number", [1, 2, 4, 5, 6, 7, 10])
def test_a_plan_is_80_columns_wide(number: int) -> None:
    assert max(map(len, plan(Study.read(f"paper_table{number}")).text().splitlines())) <= 80


@pytest.mark.parametrize("sampler", ['kind = "random"\ncells = 3', 'kind = "optuna"\ncells = 3\nstartup = 2'])
def test_sampler_asks_every_arm_for_as_many_cells(sampler: str) -> None:
    made = plan(study(sampler=sampler))
    assert [(side.cells, side.trials) for side in made.sides] == [(3, 6), (3, 6)]
    assert made.open == ("optuna" in sampler)
    assert [cell.arm for cell in made.cells] == ["cascaded"] * len(made.cells[::2]) + ["drop"] * len(made.cells[::2])


def test_cells_known_before_a_learning_sampler_starts_are_those_it_asks_first() -> None:
    made = plan(study(sampler='kind = "optuna"\ncells = 4\nstartup = 3'))
    sampler = made.study.sampler_of("drop")
    assert [sampler.ask() for _ in range(3)] == [cell.axes for cell in made.cells if cell.arm == "drop"]
    assert "2 configurations will be chosen as results come in" in made.notes


def test_huge_grid_is_refused_with_its_count() -> None:
    axes = "".join(f'"{axis}" = {list(range(1, 1001))}\n' for axis in ("optim.lr", "train.steps", "model.depth"))
    with pytest.raises(InputError) as error:
        plan(study(f"[axes]\n{axes}"))
    assert str(error.value) == "s.toml: axes: should give at most 1,000,000 configurations, got 1,000,000,000"


def test_same_configuration_in_two_arms_is_refused() -> None:
    same = '[arms]\na.topology.kind = "ancre"\nb.topology = { kind = "ancre", temperature = 0.01 }\n'
    with pytest.raises(InputError) as error:
        plan(study(same + '[axes]\n"optim.lr" = [0.1, 0.2]\n'))
    assert str(error.value) == (
        "s.toml: arms: a (optim.lr = 0.1) and b (optim.lr = 0.1) are the same configuration; "
        "they should differ, or be one arm"
    )


@pytest.mark.parametrize(
    ("axes", "line"),
    [
        ('"model.heads" = [2, 5]', 'axes."model.heads": 5 heads do not divide width 64'),
        ('"optim.lr" = [1.0, -1.0]', 'axes."optim.lr": should be greater than 0, got -1.0'),
        ('"optim.lr" = [1.0, "2"]', "axes.\"optim.lr\": should be a number, got '2'"),
        (
            'topology = [{ kind = "shortcuts", shortcuts = "0:3" }]\n"model.depth" = [4, 2]',
            "axes: shortcut 0:3 ends beyond the last of 2 blocks "
            "(at topology = {'kind': 'shortcuts', 'shortcuts': '0:3'}, model.depth = 2)",
        ),
    ],
)
def test_configuration_that_its_spec_refuses_is_named(axes: str, line: str) -> None:
    with pytest.raises(InputError) as error:
        plan(study(f"[axes]\n{axes}\n"))
    assert str(error.value) == f"s.toml: {line}"


def test_combination_that_is_at_fault_is_told_from_those_that_are_not() -> None:
    with pytest.raises(InputError, match=r'axes."model.width", "model.heads": 5 heads do not divide width 64'):
        plan(study('[axes]\n"model.width" = [60, 64]\n"model.heads" = [4, 5]\n'))
    assert plan(study('[axes]\n"model.width" = [60, 120]\n"model.heads" = [4, 5]\n')).num_cells == 4


def test_what_will_not_fit_is_said() -> None:
    made = plan(study(resources="cpus = 2\nworkers = 3\nconcurrent = 9"), machines=[Machine(cpus=4, memory=10**8)])
    assert made.at_once == 0
    assert made.notes == [
        "a trial takes 6 CPUs and this machine has 4: it needs a cluster, by --address",
        "a trial of cascaded needs 201 MB of memory; this machine has 100 MB",
        "a trial of drop needs 201 MB of memory; this machine has 100 MB",
    ]


def test_more_workers_than_sequences_are_refused() -> None:
    with pytest.raises(InputError, match=r"resources.workers: should be at most train.batch 8, got 9, for cascaded"):
        plan(Study.read("demo", ["train.batch=8", "resources.workers=9"]))
    assert plan(Study.read("demo", ["train.batch=8", "resources.workers=8"])).num_cells == 18


def test_linear_network_runs_on_one_worker() -> None:
    with pytest.raises(InputError, match=r"resources.workers: lnn runs on one worker, got 2, for cascaded"):
        plan(Study(name="lines", workload="lnn", resources={"workers": 2}))


@pytest.mark.parametrize("depth", [4097, 10**8])
@pytest.mark.parametrize("name", ["lnn_shortcuts_3layer", "demo"])
def test_absurd_depth_is_refused(name: str, depth: int) -> None:
    with pytest.raises(InputError, match=rf"depth {depth}: a stack has 1 to 4096 blocks"):
        Study.read(name, [f"model.depth={depth}"])


def test_as_many_at_once_as_cpus_memory_and_the_study_allow() -> None:
    assert plan(study(), machines=[BIG]).at_once == 8
    assert plan(study(), machines=[Machine(cpus=8, memory=200 * 10**6)]).at_once == 2
    assert plan(study(resources="cpus = 3"), machines=[BIG]).at_once == 2
    crowded = plan(study(resources="concurrent = 20"), machines=[BIG])
    assert (crowded.at_once, crowded.notes) == (8, ["resources.concurrent is 20; 8 trials at once is the most here"])


def test_a_cluster_is_counted_machine_by_machine() -> None:
    """5 places of 3 CPUs on the first, 2 on the second; with a GPU each, one and none."""
    machines = [Machine(16, 10**12, 1.0), Machine(8, 10**12, 0.0)]
    assert plan(study(resources="cpus = 3"), machines=machines).at_once == 7
    on_gpu = plan(study(resources="cpus = 3\ngpus = 1.0"), machines=machines)
    assert (on_gpu.at_once, on_gpu.units) == (1, 1)
    assert "1 h100; the cluster's 2 machines (24 CPUs, 1 GPUs), 1 trials at once" in " ".join(on_gpu.text().split())
    assert plan(study(resources="gpus = 2.0"), machines=machines).notes == [
        "a trial takes 1 x (1 CPUs, 2 GPUs), and the cluster has 16 CPUs and 1 GPUs, 8 CPUs and 0 GPUs"
    ]


def test_a_scheduler_that_stops_nothing_is_said() -> None:
    """The toy has 10 steps."""
    late = "scheduler asha stops nothing early: there is no rung before step 10"
    notes = {
        grace: plan(study("", scheduler=f'kind = "asha"\ngrace = {grace}'), machines=[BIG]).notes for grace in (9, 10)
    }
    assert notes == {9: [], 10: [late]}


def test_unequal_tuning_is_said_and_conditional_axes_are_not() -> None:
    assert plan(study(), machines=[BIG]).notes == []
    unequal = '[arms.a]\ntopology.kind = "ancre"\n[arms.b.axes]\n"optim.lr" = [0.1, 0.2, 0.3]\n'
    assert plan(study(unequal + '[axes]\n"optim.lr" = [0.1, 0.2]\n'), machines=[BIG]).notes == [
        "arms are not tuned equally; values of optim.lr that each tries: a 2, b 3"
    ]


def test_missing_file_is_a_note_and_not_a_fault(tmp_path: Path) -> None:
    learned = tmp_path / "learned.json"
    frozen = Study.parse(TOY + f'topology = {{ kind = "frozen", path = "{learned}" }}\n')
    assert plan(frozen, machines=[BIG]).notes == [f"{learned} is not there yet; it must be when the study starts"]


def test_path_that_no_file_can_have_is_a_short_note() -> None:
    (note,) = [
        note for note in plan(Study.read("demo", ["data.kind=files", f"data.path={'x' * 5000}"])).notes if "xxx" in note
    ]
    assert note.endswith("... is not there yet; it must be when the study starts")
    assert len(note) < 200


def test_budget_that_is_too_small_is_said() -> None:
    assert plan(
        study('[axes]\n"train.steps" = [10_000_000_000_000]\n', budget="hours = 0.5"), machines=[BIG]
    ).notes == ["budget.hours is 0.5, so the study may not get through"]


def test_text_and_rows_tell_the_plan() -> None:
    made = plan(study(), machines=[BIG])
    lines = made.text().splitlines()
    assert "16 configurations x 2 seeds (0, 7) = 32 trials" in lines
    assert any(line.split()[:5] == ["drop", "12", "24", "256", "10"] for line in lines)
    assert any(line.startswith("estimate: ") for line in lines)
    rows = made.rows()
    assert len(rows) == 16
    assert rows[0] == {
        "arm": "cascaded",
        "cell": made.cells[0].id,
        "axes": {"optim.lr": 0.1, "train.steps": 5},
        "seeds": [0, 7],
        "params": 256,
        "topology_params": 0,
        "flops": 6.0 * 256 * 5,
        "memory": 64 * 1024**2,
        "memory_parts": {},
        "disk": 100,
    }


def test_a_pipeline_needs_as_many_workers_as_stages() -> None:
    text = """
name = "s"
workload = "llm"
[trial]
model.size = "nano"
topology.kind = "cascaded"
optim = { kind = "adamw", lr = 1e-3 }
data.kind = "python-docs"
train = { steps = 1, batch = 8, stages = 2 }
"""
    with pytest.raises(
        InputError, match=r"^study: resources.workers: should be a multiple of train.stages, 2, got 1, for cascaded$"
    ):
        plan(Study.parse(text))
    assert plan(Study.parse(text + "[resources]\nworkers = 4\n")).num_trials == 1
    with pytest.raises(InputError, match=r"^study: resources.min_workers: a pipeline needs all its workers; it should"):
        plan(Study.parse(text + "[resources]\nworkers = 4\nmin_workers = 2\n"))
