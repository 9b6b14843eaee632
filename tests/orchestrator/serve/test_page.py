"""What a page says, and that it follows the ledger."""

import re
import time

import pytest

from analysis import names, queries
from analysis.cells import rank
from analysis.page import number
from analysis.store import Store
from orchestrator.record.ledger import LEDGER_FILE
from orchestrator.record.tracking import uri_of
from orchestrator.record.uploader import Uploader
from orchestrator.serve import watch
from orchestrator.serve.folder import StudyFolder
from orchestrator.sweep.progress import seconds_left

STATE = "/studies/mine/state.json"


def mixed(written):
    """A complete cell, one that lacks a seed, one that diverged, one that runs and one that was not started."""
    written.plan("best", **{"optim.lr": 0.1})
    written.plan("half", **{"optim.lr": 0.2})
    written.plan("away", arm="drop", **{"optim.lr": 0.3})
    written.plan("live", arm="drop", **{"optim.lr": 0.4})
    written.plan("none", arm="drop", **{"optim.lr": 0.5})
    for trial, value in (("best-s0", 12.5), ("best-s1", 11.0), ("half-s0", 3.25)):
        written.run(trial)
        written.rows(trial, {50: 2 * value, 100: value})
        written.end(trial, value)
    written.run("away-s0")
    written.rows("away-s0", {50: 20.0})
    written.end("away-s0", float("nan"), names.DIVERGED, "val/perplexity is not finite at step 100")
    written.run("live-s0")
    written.rows("live-s0", {10: 40.0, 20: 30.0})


def test_the_page_says_how_far_the_study_is(client, written):
    mixed(written)
    parts = client.ask(STATE).parts
    assert "4 of 10</b><span>trials ended" in parts["progress"]
    assert "1 diverged" in parts["progress"] and "Not running now" in parts["progress"]
    assert "ancre resume mine" in parts["progress"]
    assert 'value="20" max="100"' in parts["running"] and "30.00" in parts["running"]
    assert "val/perplexity is not finite at step 100" in parts["troubles"]
    assert re.findall(r"<code>(\w{4})</code>(?: <span[^>]*>(\w+))?", parts["leaders"]) == [
        ("best", ""),
        ("half", "incomplete"),
        ("live", "unfinished"),
        ("away", "diverged"),
    ]
    assert client.ask("/").text.count('href="/studies/mine"') == 1


def test_only_what_changed_is_sent(client, written):
    mixed(written)
    first = client.ask(STATE)
    assert set(first.parts) == set(watch.PARTS)
    quiet = drawn(client, first)
    written.rows("live-s0", {30: 25.0})
    assert set(client.ask(f"{STATE}?seen={quiet}").parts) >= {"running"}
    assert "25.00" in client.ask(STATE).parts["running"]
    assert "progress" not in client.ask(f"{STATE}?seen={quiet}").parts
    written.end("live-s0", 20.0)
    changed = client.ask(f"{STATE}?seen={quiet}").parts
    assert "5 of 10" in changed["progress"] and changed["running"] == ""


def drawn(client, first, part="learning"):
    """The versions on a page that has its figures; ask until nothing changes."""
    seen = dict(one.split(":") for one in first.seen.split(","))
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        answer = client.ask(f"{STATE}?seen=" + ",".join(f"{name}:{version}" for name, version in seen.items()))
        seen |= dict(one.split(":") for one in answer.seen.split(",") if one)
        page = client.ask(STATE).parts
        if page[part] and not answer.seen:
            return ",".join(f"{name}:{version}" for name, version in seen.items())
        time.sleep(0.05)
    raise AssertionError("no figure was drawn")


def test_figures_of_the_best_and_of_what_runs(client, written):
    mixed(written)
    drawn(client, client.ask(STATE))
    parts = client.ask(STATE).parts
    assert "Learning curves of the best" in parts["learning"] and "<svg" in parts["learning"]
    assert "drop live" in parts["now"] and "best so far: keep best" in parts["now"]
    assert not any("<style" in html or "<script" in html for html in parts.values())


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")  # MLflow's models
def test_the_leaderboard_is_that_of_query_best(client, written, monkeypatch):
    """By way of MLflow, once everything was sent there."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    mixed(written)
    written.rows("live-s0", {30: 7.0})
    written.end("live-s0", 7.0, names.STOPPED, "asha: not among the best")
    uploader = Uploader(written.home, "mine")
    uploader.look()
    uploader.close()
    stored = queries.best("mine", top=99, tracking_uri=uri_of(written.home))
    study = StudyFolder(written.folder)
    here = rank(Store(study), Store(study).study("mine"), "val/perplexity")
    assert [{**cell.row(), "runs": None} for cell in here] == [{**cell.row(), "runs": None} for cell in stored]
    shown = client.ask(STATE).parts["leaders"]
    rows = re.findall(r"<tr>(.*?)</tr>", shown)[1:]
    assert len(rows) == len(stored) == 4
    for text, cell in zip(rows, stored, strict=True):
        assert cell.cell in text and f">{number(cell.summary.mean)}<" in text and f">{cell.summary.n}<" in text
    assert [cell.summary.mean for cell in stored] == [11.75, 3.25, 7.0, None]
    assert Store(study).history(Store(study).study("mine").runs, "val/perplexity")["half-s0"] == [
        (50, 6.5),
        (100, 3.25),
    ]


EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\"'&"


def test_free_text_is_text(client, tmp_path, written):
    written.begin(**{"ancre.hypothesis": EVIL})
    written.plan("c0", arm=EVIL, **{"topology.shortcuts": EVIL, EVIL: EVIL})
    written.run("c0-s0")
    written.rows("c0-s0", {10: 1.0, 20: 1.0})
    written.run("c0-s1")
    written.rows("c0-s1", {10: 1.0, 20: 1.0})
    written.end("c0-s1", 1.0, names.FAILED, EVIL)
    drawn(client, client.ask(STATE), "now")
    parts = client.ask(STATE).parts
    page = client.ask("/studies/mine").text
    assert all("onerror" in parts[name] for name in ("running", "leaders", "troubles", "now"))
    assert "onerror" in page
    for html in (*parts.values(), page):
        assert "<img src=x" not in html and "<script>alert" not in html
        assert "onerror=alert" not in re.sub(r"&lt;.*?&gt;", "", html)


def test_secrets_in_a_cause_are_not_shown(client, written):
    written.plan("c0")
    written.run("c0-s0")
    written.end("c0-s0", 1.0, names.FAILED, "no answer from postgresql://me:hunter2@db/x?token=abc123")
    shown = client.ask(STATE).parts["troubles"]
    assert "no answer from postgresql" in shown and "hunter2" not in shown and "abc123" not in shown


def test_a_broken_ledger_is_said_and_hides_no_other_study(client, tmp_path, written):
    (tmp_path / "studies" / "broken").mkdir()
    (tmp_path / "studies" / "broken" / LEDGER_FILE).write_text("null\n")
    assert "it is no JSON object" in client.ask("/studies/broken/state.json").parts["progress"]
    overview = client.ask("/state.json").parts["studies"]
    assert "it is no JSON object" in overview and "0 of 0 trials ended" in overview


def test_a_ledger_that_was_replaced_is_read_anew(client, written):
    written.plan("c0")
    assert "0 of 2" in client.ask(STATE).parts["progress"]
    other = written.folder / "other.jsonl"
    other.write_bytes((written.folder / LEDGER_FILE).read_bytes().replace(b"c0", b"c1")[: -len(b"\n")] + b"\n")
    other.replace(written.folder / LEDGER_FILE)
    with pytest.raises(OSError, match="was replaced"):
        written.run("c1-s0")  # to the file that is gone
    assert "0 of 2" in client.ask(STATE).parts["progress"]
    (written.folder / LEDGER_FILE).unlink()
    assert client.ask(STATE).status == 404


def test_a_trial_that_goes_on_from_a_checkpoint_takes_rows_back(written):
    written.plan("c0")
    written.run("c0-s0")
    written.rows("c0-s0", {10: 5.0, 20: 4.0, 30: 3.0})
    study = StudyFolder(written.folder)
    study.update()
    written.rows("c0-s0", {20: 4.5})
    study.update()
    assert study.history(["c0-s0"], "val/perplexity") == {"c0-s0": [(10, 5.0), (20, 4.5)]}
    assert study.ledger.trials["c0-s0"].step == 20


def test_time_left_is_by_the_steps_of_this_attempt(written):
    """50 of 400 steps were done before; 100 more took 20 s, 70 are ahead of what runs and 200 of what waits."""
    written.plan("c0")
    written.plan("c1")
    written.run("c0-s0")
    written.ledger.write(names.PAUSED, trial="c0-s0", step=50)
    written.begin()
    written.run("c0-s0")
    written.end("c0-s0", 1.0)
    written.run("c0-s1")
    written.rows("c0-s1", {50: 1.0})
    study = StudyFolder(written.folder)
    study.update()
    assert study.ledger.before == 50
    assert seconds_left(study.trials, 2, study.ledger.before, 20.0) == pytest.approx(20 / 100 * (200 + 50))
    assert seconds_left(study.trials, 2, 150, 20.0) is None
