import pytest

from orchestrator.cli import main
from orchestrator.errors import InputError
from orchestrator.record.ledger import LEDGER_FILE, Ledger
from orchestrator.record.status import status


@pytest.mark.parametrize("damage", ["line", "folder"])
def test_a_broken_ledger_hides_no_other_study(tmp_path, damage, capsys):
    for name in ("broken", "whole"):
        (tmp_path / "studies" / name).mkdir(parents=True)
    Ledger(tmp_path / "studies" / "whole").close()
    broken = tmp_path / "studies" / "broken" / LEDGER_FILE
    if damage == "folder":
        broken.mkdir()
    else:
        broken.write_text("null\n")
    first, second = status(tmp_path, None)
    assert first.keys() == {"study", "fault"} and str(broken) in first["fault"]
    assert (second["study"], second["left"]) == ("whole", 0) and "fault" not in second
    with pytest.raises(InputError) as caught:
        status(tmp_path, "broken")
    assert str(caught.value) == first["fault"]
    assert main(["status", "--home", str(tmp_path)]) == 0
    assert main(["status", "broken", "--home", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"ancre: {first['fault']}\n"
