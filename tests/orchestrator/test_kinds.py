"""A kind is found by its name or by a dotted path; anything else is refused in one line."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from models.optim.base import OptimSpec
from models.optim.sgd import Spec as Sgd
from orchestrator import kinds
from orchestrator.errors import InputError

OUTSIDE = """'What this file is for.'
from models.optim.base import OptimSpec
class Spec(OptimSpec):
    decay: float = 0.5
    def state_numbers(self, shapes): return 0
    def build(self, network): return None
"""


class Holder(BaseModel):
    optim: kinds.AnyOptim


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package `stranger` that can be imported for the length of one test."""
    package = tmp_path / "stranger"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "good.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(tmp_path)
    yield package
    for name in [name for name in sys.modules if name.split(".")[0] == "stranger"]:
        del sys.modules[name]
    kinds.find.cache_clear()


def test_a_kind_is_a_file_of_its_family() -> None:
    folder = Path(kinds.__file__).parent.parent / "models" / "optim"
    files = {path.stem.replace("_", "-") for path in folder.glob("*.py")}
    assert set(kinds.names("optim")) == files - {"--init--", *kinds.FAMILIES["optim"].shared}
    assert kinds.find("optim", "sgd") is Sgd


def test_summary_is_the_first_line_of_the_file() -> None:
    assert kinds.summary("optim", "sgd").startswith("Gradient descent, plain or with momentum")


def test_a_table_is_read_as_its_kind_and_written_whole() -> None:
    held = Holder(optim={"kind": "sgd", "lr": 0.5, "momentum": 0.9})
    assert held.optim == Sgd(lr=0.5, momentum=0.9)
    assert held.model_dump() == {"optim": {"kind": "sgd", "lr": 0.5, "momentum": 0.9}}
    assert Holder.model_validate_json(held.model_dump_json()) == held


def test_a_spec_is_taken_as_it_is() -> None:
    spec = Sgd(lr=0.25)
    assert Holder(optim=spec).optim is spec


def test_a_dotted_path_reaches_outside(outside: Path) -> None:
    held = Holder(optim={"kind": "stranger.good", "lr": 1.0})
    assert isinstance(held.optim, OptimSpec)
    assert held.model_dump() == {"optim": {"kind": "stranger.good", "lr": 1.0, "decay": 0.5}}
    assert kinds.summary("optim", "stranger.good") == "What this file is for."


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("sdg", "no optim of kind 'sdg'; did you mean 'sgd'?"),
        ("base", "no optim of kind 'base'"),
        ("SGD", "no optim of kind 'SGD'"),
        ("", "no optim of kind ''"),
        (".sgd", "no optim of kind '.sgd'"),
        ("a..b", "no optim of kind 'a..b'"),
        ("../sgd", "no optim of kind '../sgd'"),
        (
            "stranger.absent",
            "'stranger.absent' cannot be imported: ModuleNotFoundError: No module named 'stranger.absent'",
        ),
        ("nowhere.at.all", "'nowhere.at.all' cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
        ("stranger.needy", "'stranger.needy' cannot be imported: ModuleNotFoundError: No module named 'not_installed'"),
        ("stranger.broken", "'stranger.broken' cannot be imported: RuntimeError: two lines"),
        ("stranger.leaves", "'stranger.leaves' cannot be imported: SystemExit: 0"),
        ("stranger.stops", "'stranger.stops' cannot be imported: KeyboardInterrupt"),
        ("stranger.odd", "'stranger.odd' cannot be imported: Odd: x"),
        ("stranger.bare", "optim kind 'stranger.bare': its Spec lacks build, state_numbers"),
        ("stranger.empty", "the module defines no class `Spec` derived from OptimSpec"),
        ("stranger.other", "the module defines no class `Spec` derived from OptimSpec"),
        ("stranger.instance", "the module defines no class `Spec` derived from OptimSpec"),
    ],
)
def test_what_is_not_a_kind_is_refused_in_one_line(outside: Path, kind: str, line: str) -> None:
    (outside / "needy.py").write_text("import not_installed\n")
    (outside / "broken.py").write_text("raise RuntimeError('two\\nlines')\n")
    (outside / "leaves.py").write_text("import sys\nsys.exit(0)\n")
    (outside / "stops.py").write_text("raise KeyboardInterrupt\n")
    (outside / "odd.py").write_text("class Odd(BaseException): pass\nraise Odd('x')\n")
    (outside / "bare.py").write_text("from models.optim.base import OptimSpec\nclass Spec(OptimSpec): pass\n")
    (outside / "empty.py").write_text("spec = 1\n")
    (outside / "other.py").write_text("from models.topology.base import TopologySpec\nclass Spec(TopologySpec): pass\n")
    (outside / "instance.py").write_text("Spec = 3\n")
    with pytest.raises(InputError) as caught:
        kinds.find("optim", kind)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("family", "base", "lacks"),
    [
        ("topology", "models.topology.base.TopologySpec", "build, num_coefficients"),
        ("topology", "models.wiring.WiredSpec", "wiring"),
        ("data", "orchestrator.data.base.DataSpec", "documents"),
        ("workload", "orchestrator.workloads.base.TrialSpec", "default_metric, estimate, rows, total_steps"),
    ],
)
def test_spec_that_leaves_out_what_its_family_needs_is_refused(
    outside: Path, family: str, base: str, lacks: str
) -> None:
    module, _, name = base.rpartition(".")
    (outside / "bare.py").write_text(f"from {module} import {name}\nclass Spec({name}): pass\n")
    with pytest.raises(InputError, match=rf"^{family} kind 'stranger.bare': its Spec lacks {lacks}$"):
        kinds.find(family, "stranger.bare")


@pytest.mark.parametrize("value", ["sgd", 3, None, {}, {"kind": 3}, {"lr": 1e-3}])
def test_what_is_no_table_with_a_kind_is_refused_with_the_choices(value: object) -> None:
    with pytest.raises(ValidationError, match=r"give a table with a kind \(there are: .*sgd"):
        Holder.model_validate({"optim": value})


@pytest.mark.parametrize(
    ("table", "where", "what"),
    [
        ({"kind": "sgd", "rate": 1.0}, ("optim", "rate"), "Extra inputs"),
        ({"kind": "sgd", "lr": 0.0}, ("optim", "lr"), "greater than 0"),
        ({"kind": "sgd", "lr": float("nan")}, ("optim", "lr"), "finite number"),
        ({"kind": "sgd", "momentum": 1.0}, ("optim", "momentum"), "less than 1"),
    ],
)
def test_a_fault_inside_a_table_keeps_its_path(table: dict[str, object], where: tuple[str, ...], what: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Holder.model_validate({"optim": table})
    (fault,) = caught.value.errors()
    assert fault["loc"] == where
    assert what in fault["msg"]
