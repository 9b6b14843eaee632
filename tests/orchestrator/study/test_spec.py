"""A study is read as it is written; what it cannot mean is refused in one line that says where."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import InputError
from orchestrator.study import study_file
from orchestrator.study.spec import Study, check_name
from search_spaces import samplers

HEAD = 'name = "toy"\nworkload = "toys.bowl"\n'
TOY = HEAD + '[trial]\noptim = { kind = "sgd", lr = 0.1 }\n'
ARMS = """
[arms.cascaded]
topology.kind = "cascaded"
[arms.drop]
topology = { kind = "ancre", inner_residual = "drop" }
[arms.drop.axes]
"topology.normalization" = ["ingoing", "outgoing"]
"""
AXES = """
[axes]
"optim.lr" = [0.1, 0.2]
"topology.temperature" = [0.01, 0.1]
"""


def axes_of(study: Study) -> dict[str, list[dict[str, Any]]]:
    """Every configuration of each arm, as the values of its axes."""
    return {name: list(samplers.everything(arm.spaces)) for name, arm in study.resolved.items()}


def fault(text: str) -> str:
    with pytest.raises(InputError) as error:
        Study.parse(text, "s.toml")
    line = str(error.value)
    assert line.startswith("s.toml: ") and "\n" not in line
    return line.removeprefix("s.toml: ")


# ---- what a study says


def test_axis_applies_where_the_arm_has_such_a_field() -> None:
    configurations = axes_of(Study.parse(TOY + ARMS + AXES))
    assert configurations["cascaded"] == [{"optim.lr": 0.1}, {"optim.lr": 0.2}]
    assert len(configurations["drop"]) == 2 * 2 * 2
    assert list(configurations["drop"][0]) == ["optim.lr", "topology.temperature", "topology.normalization"]


def test_arm_of_another_kind_replaces_the_table_and_one_of_the_same_kind_changes_it() -> None:
    topology = 'topology = { kind = "ancre", temperature = 0.5 }\n'
    study = Study.parse(
        TOY + topology + '[arms.a]\ntopology.kind = "cascaded"\n[arms.b]\ntopology.inner_residual = "keep"\n'
    )
    a, b = (study.cell(name, {}).trial for name in ("a", "b"))
    assert a.topology.model_dump() == {"kind": "cascaded"}
    assert (b.topology.kind, b.topology.temperature, b.topology.inner_residual) == ("ancre", 0.5, "keep")


def test_without_arms_each_kind_of_topology_is_one() -> None:
    kinds = '"topology.kind" = ["cascaded", "ancre"]\n"topology.temperature" = [0.01, 0.1]\n'
    assert axes_of(Study.parse(TOY + "[axes]\n" + kinds)) == {
        "cascaded": [{"topology.kind": "cascaded"}],
        "ancre": [{"topology.kind": "ancre", "topology.temperature": value} for value in (0.01, 0.1)],
    }


def test_axis_of_whole_tables_takes_the_other_axes_that_fit_each() -> None:
    tables = 'topology = [{ kind = "cascaded" }, { kind = "ancre", inner_residual = "keep" }, { kind = "ancre" }]\n'
    study = Study.parse(TOY + "[axes]\n" + tables + '"topology.temperature" = [0.01, 0.1]\n')
    assert {name: len(found) for name, found in axes_of(study).items()} == {"cascaded": 1, "ancre": 4}
    kept = study.cell("ancre", axes_of(study)["ancre"][1]).trial.topology
    assert (kept.inner_residual, kept.temperature) == ("keep", 0.1)


def test_kinds_within_an_arm_settle_which_axes_apply() -> None:
    axes = '[arms.a.axes]\n"optim.kind" = ["sgd", "adamw"]\n"optim.momentum" = [0.0, 0.9]\n"optim.lr" = [0.1, 0.2]\n'
    configurations = axes_of(Study.parse(TOY + axes))["a"]
    assert len(configurations) == 2 * 2 + 2
    assert [axes for axes in configurations if axes["optim.kind"] == "adamw"] == [
        {"optim.kind": "adamw", "optim.lr": 0.1},
        {"optim.kind": "adamw", "optim.lr": 0.2},
    ]


def test_section_without_a_kind_is_of_the_kind_that_the_workload_has_by_default() -> None:
    study = Study(name="lines", workload="lnn", axes={"optim.lr": [1e-3, 1e-2]})
    assert [study.cell("cascaded", axes).trial.optim.kind for axes in axes_of(study)["cascaded"]] == ["sgd", "sgd"]


@pytest.mark.parametrize(
    ("written", "seeds"),
    [("[4, 1]", (4, 1)), ('"0..2"', (0, 1, 2)), ('"3..3"', (3,)), ('"0, 3..5"', (0, 3, 4, 5)), ('"7"', (7,))],
)
def test_seeds_are_a_list_or_a_range(written: str, seeds: tuple[int, ...]) -> None:
    assert Study.parse(f"seeds = {written}\n{TOY}").seeds == seeds


def test_metric_is_the_workloads_unless_given() -> None:
    assert Study.parse(TOY).metric == "train/loss"
    assert Study.parse('metric = "train/distance"\n' + TOY).metric == "train/distance"


def test_python_tables_and_dotted_names_say_the_same_as_the_file() -> None:
    said = Study(
        name="toy",
        workload="toys.bowl",
        trial={"optim.kind": "sgd", "optim": {"lr": 0.1}},
        arms={
            "cascaded": {"topology.kind": "cascaded"},
            "drop": {
                "topology": {"kind": "ancre", "inner_residual": "drop"},
                "axes": {"topology": {"normalization": ["ingoing", "outgoing"]}},
            },
        },
        axes={"optim": {"lr": [0.1, 0.2]}, "topology.temperature": [0.01, 0.1]},
    )
    read = Study.parse(TOY + ARMS + AXES)
    assert said == read and hash(said) == hash(read) and said.source == "toy"


@pytest.mark.parametrize("more", ["", ARMS + AXES, '[axes]\n"optim.lr" = { low = 1e-3, high = 1.0, log = true }\n'])
def test_written_study_reads_back_equal(more: str) -> None:
    end = '[sampler]\nkind = "random"\ncells = 1\n[scheduler]\nkind = "asha"\ngrace = 3\n[budget]\nhours = 1.5\n'
    study = Study.parse('hypothesis = "It \\"works\\" — 它行."\nseeds = "1..2"\n' + TOY + more + end)
    assert Study.parse(study.to_toml()) == study
    assert Study.parse(study.to_toml()).to_toml() == study.to_toml()


def test_study_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Study.parse(TOY).name = "other"


def test_only_content_makes_studies_differ(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(TOY)
    assert Study.read(tmp_path / "a.toml") == Study.parse(TOY)
    assert Study.parse(TOY) != Study.parse("seeds = [1]\n" + TOY)


# ---- overrides


def overridden(tmp_path: Path, *overrides: str, text: str = TOY + ARMS + AXES) -> Study:
    (tmp_path / "s.toml").write_text(text)
    return Study.read(tmp_path / "s.toml", overrides, seeds="0..1")


def test_override_of_what_no_arm_touches_is_set_in_the_trial(tmp_path: Path) -> None:
    study = overridden(tmp_path, "train.steps=3", "model.depth = 2", "seeds=[9]", "name=other")
    assert (study.trial["train"]["steps"], study.trial["model"]["depth"]) == (3, 2)
    assert (study.seeds, study.name, list(study.axes)) == ((0, 1), "other", ["optim.lr", "topology.temperature"])


def test_override_of_what_arms_or_axes_touch_holds_for_every_arm_that_has_it(tmp_path: Path) -> None:
    study = overridden(tmp_path, "optim.lr=0.5", "topology.temperature=1.0", "topology.normalization=outgoing")
    assert axes_of(study) == {
        "cascaded": [{"optim.lr": 0.5}],
        "drop": [{"optim.lr": 0.5, "topology.temperature": 1.0, "topology.normalization": "outgoing"}],
    }


def test_override_replaces_what_an_arm_sets_itself(tmp_path: Path) -> None:
    arms = "[arms.a]\ntrain.steps = 5\n[arms.b]\ntrain = { steps = 7 }\nmodel.depth = 2\n"
    study = overridden(tmp_path, "train.steps=3", text=TOY + arms)
    assert [study.cell(arm, {"train.steps": 3}).trial.total_steps for arm in ("a", "b")] == [3, 3]


def test_override_of_arms_keeps_those_that_are_named() -> None:
    arms = [*Study.read("paper_table2", ["arms=60m_*,1b_mhc"]).resolved]
    assert len(arms) == 11 and all(arm.startswith("60m_") or arm == "1b_mhc" for arm in arms)
    with pytest.raises(InputError, match="override: arms: no arm is called '60m_ancre'; did you mean '60m_"):
        Study.read("paper_table2", ["arms=60m_ancre"])


def test_override_of_a_field_of_the_study(tmp_path: Path) -> None:
    study = overridden(
        tmp_path, "sampler.kind=random", "sampler.cells=2", "axes.optim.lr=[1.0, 2.0]", "workload=toys.bowl"
    )
    assert (study.sampler.kind, study.axes["optim.lr"]) == ("random", [1.0, 2.0])


@pytest.mark.parametrize("text", ["x", "=3", "optim.lr=", "optim..lr=3"])
def test_override_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"override: should be path=value, as optim.lr=1e-3, got"):
        overridden(tmp_path, text)


# ---- what is refused

BAD_NAMES = ["", "a/b", "..", "a..b", "a:b", "a=b", "a'b", 'a\\"b', "a\\nb", "a b", "😀", "x" * 300, "-a", ".a", "a."]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_bad_name_of_a_study_or_an_arm_is_refused(name: str) -> None:
    message = (
        "a name should have 1 to 100 letters, digits, '_', '-' and single '.', beginning with a letter, digit or '_'"
    )
    assert message in fault(TOY.replace('"toy"', f'"{name}"'))
    assert message in fault(f'{TOY}[arms."{name}"]\ntrain.steps = 3\n')


@pytest.mark.parametrize("name", [*BAD_NAMES, "ß" * 300, "../toy", "/toy", "a\0b"])
def test_bad_name_on_the_command_line_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="study: a name should have 1 to 100 letters") as error:
        check_name(name)
    assert str(error.value).isprintable()


def test_good_name_on_the_command_line_is_taken_as_it_is() -> None:
    assert check_name("lnn_3.layers-b") == "lnn_3.layers-b"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "is empty; a study has at least a name and a workload"),
        ("name = \n", "no TOML: Invalid value (at line 1, column 8), in 'name ='"),
        (HEAD + HEAD, "the same key twice: Cannot overwrite a value (at line 3, column 13), in 'name = \"toy\"'"),
        ("a = " + "[" * 5000, "no TOML that a study can have: too deeply nested"),
        (TOY.replace('"toy"', "3"), "name: should be text, got 3"),
        ('nmae = "x"\n' + TOY, "nmae: no such key; did you mean 'name'?"),
        ('name = "x"\n', "workload: is required"),
        (TOY.replace("toys.bowl", "lmn"), "workload: no workload of kind 'lmn'; did you mean 'lnn'?"),
        (TOY.replace("toys.bowl", "toys.bowel"), "workload: workload kind 'toys.bowel' cannot be imported"),
        ("seeds = [-1]\n" + TOY, "seeds: a seed should be a whole number from 0 to 2147483647, got -1"),
        ("seeds = [true]\n" + TOY, "seeds: a seed should be a whole number from 0 to 2147483647, got True"),
        ("seeds = [1, 0, 1]\n" + TOY, "seeds: should name each seed once, got 1 twice"),
        ("seeds = []\n" + TOY, "seeds: should be 1 to 1000 seeds, got an empty list"),
        ('seeds = "3..1"\n' + TOY, "seeds: should be a list such as [0, 1, 2], or \"0..2\", got '3..1'"),
        ('seeds = "0..9999999999"\n' + TOY, "seeds: should be 1 to 1000 seeds, got more"),
        ("seeds = 3\n" + TOY, 'seeds: should be a list such as [0, 1, 2], or "0..2", got 3'),
        ('mode = "best"\n' + TOY, "mode: should be 'min' or 'max', got 'best'"),
        (
            'metric = "train/los"\n' + TOY,
            "metric: workload 'toys.bowl' logs no 'train/los'; did you mean 'train/loss'?",
        ),
        (
            'name = "toy"\nworkload = "lnn"\nmetric = "foo"\n',
            "metric: workload 'lnn' logs no 'foo' (there are: train/loss)",
        ),
        ('published = "tabel4"\n' + TOY, "published: no published table 'tabel4'; did you mean 'table4'?"),
        (TOY + "seed = 3\n", "trial.seed: seeds are repeats, given as seeds = [0, 1, 2] at the top"),
        (TOY + "[arms.a]\nworkload = 'lnn'\n", "arms.a.workload: a study has one workload"),
        (TOY + '"train.steps" = 3\ntrain.steps = 4\n', "trial: should set each key once, got train.steps twice"),
        # fields of a trial
        (TOY + "modl.depth = 3\n", "trial.modl: no such key; did you mean 'model'?"),
        (TOY + "model.depth = 0\n", "trial.model.depth: should be greater than 0, got 0"),
        (TOY + "model.depth = -2\n", "trial.model.depth: should be greater than 0, got -2"),
        (TOY + "model.heads = 5\n", "trial.model: 5 heads do not divide width 64"),
        (TOY.replace("0.1", "nan"), "trial.optim.lr: should be a finite number, got nan"),
        (TOY.replace("0.1", "-inf"), "trial.optim.lr: should be a finite number, got -inf"),
        (TOY.replace("0.1", '"0.1"'), "trial.optim.lr: should be a number, got '0.1'"),
        (TOY + 'train.steps = "5"\n', "trial.train.steps: should be a number, got '5'"),
        (TOY + "train.steps = true\n", "trial.train.steps: should be a number, got True"),
        (TOY + "train.steps = 1.5\n", "trial.train.steps: should be a whole number, got 1.5"),
        (TOY + 'train.betas = [0.1, "0.2"]\n', "trial.train.betas.1: should be a number, got '0.2'"),
        (TOY + "model.tied = 1\n", "trial.model.tied: should be true or false, got 1"),
        (TOY + "note = 1\n", "trial.note: should be text, got 1"),
        (TOY + "model = 1\n", "trial.model: "),
        (HEAD, "trial.optim: is required"),
        (
            TOY + 'topology.kind = "anchre"\n',
            "trial.topology: no topology of kind 'anchre'; did you mean 'ancre'? (there are: ",
        ),
        (TOY + "topology = 3\n", "trial.topology: "),
        (
            TOY + 'topology = { kind = "ancre", tau = 1 }\n',
            "trial.topology.tau: no such key (there are: inner_residual, kind",
        ),
        (
            TOY + 'model.depth = 2\ntopology = { kind = "shortcuts", shortcuts = "0:3" }\n',
            "trial: shortcut 0:3 ends beyond the last of 2 blocks",
        ),
        # arms
        (TOY + "[arms]\na = 3\n", "arms.a: should be a table, got 3"),
        (TOY + "[arms.a]\ntrian.steps = 3\n", "arms.a.trian: no such key; did you mean 'train'?"),
        (TOY + '[arms.a]\noptim.lr = "x"\n', "arms.a.optim.lr: should be a number, got 'x'"),
        (
            TOY + '[arms.a]\noptim.lr = 3.0\n[axes]\n"optim.lr" = [1, 2]\n',
            "arms.a.optim.lr: is set here and is an axis; give it once",
        ),
        (
            TOY + '[arms.a.axes]\n"topology.temperature" = [1, 2]\n',
            'arms.a.axes."topology.temperature": arm a has no topology.temperature',
        ),
        (TOY + "[arms.a.axes]\nnote = []\n", "arms.a.axes.note: should have at least one value, got an empty list"),
        # axes
        ("axes = 3\n" + TOY, "axes: should be a table, got 3"),
        (TOY + '[axes]\n"optim.lr" = []\n', 'axes."optim.lr": should have at least one value, got an empty list'),
        (TOY + '[axes]\n"optim.lr" = {}\n', 'axes."optim.lr": should be a list of values, {low, high'),
        (TOY + "[arms.a.axes]\noptim.lr = {}\n", 'arms.a.axes."optim.lr": should be a list of values, {low, high'),
        (TOY + "[axes]\nseed = [1, 2]\n", "axes.seed: is no axis: seeds are repeats"),
        (TOY + '[axes]\nworkload = ["llm"]\n', "axes.workload: is no axis: a study has one workload"),
        (
            TOY + '[axes]\n"optim.lrr" = [1, 2]\n',
            "axes.\"optim.lrr\": arm cascaded has no optim.lrr; did you mean 'lr'?",
        ),
        (TOY + ARMS + '[axes]\n"optm.lr" = [1, 2]\n', "axes.\"optm.lr\": no arm has optm; did you mean 'optim'?"),
        (TOY + '[axes]\n"optim.lr" = [nan]\n', 'axes."optim.lr": should hold finite numbers, got nan'),
        (TOY + '[axes]\n"optim.lr" = ["a"]\n', "axes.\"optim.lr\": should be a number, got 'a'"),
        (
            TOY + '[axes]\n"optim.lr" = { low = 1, high = 2 }\n',
            'axes."optim.lr": a grid takes a list of values; a range needs sampler.kind = "random"',
        ),
        (TOY + '[axes]\n"optim.lr" = [1]\noptim.lr = [2]\n', "axes: should have each axis once, got optim.lr twice"),
        # tables of the study
        (TOY + '[sampler]\nkind = "tpe"\n', "sampler: no sampler of kind 'tpe' (there are: grid, optuna, random)"),
        (TOY + '[sampler]\nkind = "random"\n', "sampler.cells: is required"),
        (TOY + '[sampler]\nkind = "random"\ncells = 0\n', "sampler.cells: should be greater than 0, got 0"),
        (TOY + '[sampler]\nkind = "optuna"\ncels = 4\n', "sampler.cels: no such key; did you mean 'cells'?"),
        (
            TOY + ARMS + AXES + '[sampler]\nkind = "random"\ncells = 3\n',
            "sampler.cells: should be at most the 2 configurations that arm cascaded has",
        ),
        (TOY + '[scheduler]\nkind = "asha"\ngrase = 3\n', "scheduler.grase: no such key; did you mean 'grace'?"),
        (TOY + "[resources]\ncpus = 0\n", "resources.cpus: should be greater than or equal to 1, got 0"),
        (TOY + "[resources]\ncpu = 1\n", "resources.cpu: no such key; did you mean 'cpus'?"),
        (TOY + '[resources]\nworkers = "2"\n', "resources.workers: should be a whole number, got '2'"),
        (TOY + "[budget]\nhours = inf\n", "budget.hours: should be a finite number, got inf"),
    ],
)
def test_what_a_study_cannot_mean_is_refused_where_it_stands(text: str, line: str) -> None:
    assert fault(text).startswith(line)


DEEP = ".".join("x" * 3000)


@pytest.mark.parametrize(
    "text",
    [
        TOY + f"[trial.{DEEP}]\na = 1\n",
        TOY + f'"{DEEP}" = 1\n',
        TOY + f"[arms.a.{DEEP}]\nb = 1\n",
        TOY + f'[axes]\n"{DEEP}" = [1]\n',
        TOY + f"[axes]\n{DEEP} = [1]\n",
        TOY + f"[sampler.{DEEP}]\n",
        TOY + f"note = {'[' * 40}{']' * 40}\n",
    ],
)
def test_what_is_nested_too_deeply_is_refused(text: str) -> None:
    line = fault(text)
    assert line.endswith("too deeply nested; should have at most 32 levels")
    assert len(line) <= 600


@pytest.mark.parametrize("override", [f"{DEEP}=1", f"axes.{DEEP}=[1]", f"note={'[' * 5000}", f"note={{{DEEP} = 1}}"])
def test_override_that_is_nested_too_deeply_is_refused(tmp_path: Path, override: str) -> None:
    with pytest.raises(InputError, match="too deeply nested") as error:
        overridden(tmp_path, override)
    assert len(str(error.value)) <= 600


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            TOY + "model.depth = 9223372036854775808\n",
            "trial.model.depth: should be below 2^63, got a number of 64 bits",
        ),
        (
            TOY + f"model.depth = 0x{'f' * 5000}\n",
            "trial.model.depth: should be below 2^63, got a number of 20000 bits",
        ),
        (TOY + f"model.depth = {'9' * 5000}\n", "no TOML that a study can have: a number of thousands of digits"),
    ],
)
def test_whole_number_that_toml_does_not_have_is_refused(text: str, line: str) -> None:
    assert fault(text) == line


@pytest.mark.parametrize(
    "text",
    [
        TOY + f"[axes]\n{'y' * 9000} = [1]\n",
        TOY + f'[axes]\n"optim.lr" = "{"y" * 9000}"\n',
        TOY + f'topology.kind = "{"y" * 9000}"\n',
        TOY + f'model.tied = "{"y" * 9000}"\n',
        f'seeds = "{"y" * 9000}"\n' + TOY,
    ],
)
def test_what_a_complaint_quotes_is_cut(text: str) -> None:
    line = fault(text)
    assert "yyy" in line and len(line) <= 600


def test_first_of_many_faults_says_how_many_there_are() -> None:
    assert fault('mode = "x"\nhypothesis = 3\n' + TOY).endswith("(and 1 more)")


def test_python_values_that_no_file_can_hold_are_refused() -> None:
    with pytest.raises(InputError, match="should hold what TOML can say"):
        Study(name="toy", workload="toys.bowl", trial={"optim": {"kind": "sgd", "lr": 0.1}, "note": None})


# ---- files


def test_shipped_study_is_found_by_its_bare_name() -> None:
    assert Study.read("demo").source == str(study_file.SHIPPED / "demo.toml")


def test_byte_order_mark_is_no_part_of_a_study(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(TOY, encoding="utf-8-sig")
    assert Study.read(tmp_path / "s.toml") == Study.parse(TOY)


def test_file_that_cannot_be_a_study_is_refused(tmp_path: Path) -> None:
    binary, huge = tmp_path / "binary.toml", tmp_path / "huge.toml"
    binary.write_bytes(b"\x00\xff\xfe")
    huge.write_bytes(b"#" * (study_file.LARGEST + 1))
    for path, message in {
        str(tmp_path): "is a folder; give the study's TOML file",
        str(binary): "should be TOML in UTF-8, got bytes that are not text",
        str(huge): "a study file has at most 1048576 bytes, got 1048577",
        str(tmp_path / "nope.toml"): "no such file",
        "dmeo": "no such file; did you mean 'demo'? (there are: ",
        "x" * 5000: "",
        "a\0b\n": "",
    }.items():
        with pytest.raises(InputError) as error:
            Study.read(path)
        line = str(error.value)
        assert len(line) < 500 and line.isprintable()
        assert not message or line.startswith(f"{path}: {message}")
