"""Against a real sqlite store, read back with MLflow's own client."""

import json
import math
import socket
import subprocess
import sys

import pytest

from analysis import names
from orchestrator.errors import InputError
from orchestrator.record import tracking, uploader
from orchestrator.record.ledger import ATTEMPT, FAILED, FINISHED, PAUSED, PLANNED, RUNNING, History, Ledger
from orchestrator.record.spool import ROWS_FILE, Spool, row
from orchestrator.record.uploader import Uploader, unsent

# MLflow's models use options that SQLAlchemy 2.1 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def client(home):
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking.uri_of(home))


class Study:
    """A study's folder as a driver would write it."""

    def __init__(self, home, name):
        self.home, self.name = home, name
        self.folder = home / "studies" / name
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "study.toml").write_text("name = 'x'\n")
        self.ledger = Ledger(self.folder)
        self.ledger.write(ATTEMPT, attempt=1, study={names.ROLE: names.STUDY, names.STUDY_NAME: name})

    def plan(self, trial, seed=0, **spec):
        spec = {"workload": "lnn", "seed": seed, "optim": {"kind": "sgd", "lr": 0.1}, **spec}
        self.ledger.write_all(
            [
                {
                    "event": PLANNED,
                    "trial": trial,
                    "cell": "c",
                    "arm": "ours",
                    "axes": {"optim.lr": 0.1, "text.x": "y"},
                    "seed": seed,
                    "steps": 100,
                    "spec": spec,
                }
            ]
        )
        return self.folder / "trials" / trial

    def start(self, trial):
        self.ledger.write(RUNNING, trial=trial, attempt=1)

    def rows(self, trial, *steps, **metrics):
        folder = self.folder / "trials" / trial
        folder.mkdir(parents=True, exist_ok=True)
        spool = Spool(folder / ROWS_FILE)
        for step in steps:
            spool.append(step, row(1000.0 + step, metrics or {"train/loss": 1.0 / (1 + step)}))
        spool.close()

    def runs(self, client):
        experiment = client.get_experiment_by_name(self.name)
        runs = client.search_runs([experiment.experiment_id], f"tags.`{names.ROLE}` = 'trial'")
        return {run.data.tags[names.TRIAL_ID]: run for run in runs}

    def points(self, client, trial, metric="train/loss"):
        history = client.get_metric_history(self.runs(client)[trial].info.run_id, metric)
        return sorted((point.step, point.value, point.timestamp) for point in history)

    def unsent(self):
        return unsent(self.home, self.name, History(self.folder))


@pytest.fixture
def study(home, request):
    return Study(home, request.node.name.replace("[", "-").replace("]", ""))


def test_a_finished_trial_is_one_whole_run(study, home, client):
    folder = study.plan("c-s0", note="a=b@[c]" * 1000)
    study.start("c-s0")
    study.rows("c-s0", 0, 10, 20)
    (folder / "spec.json").write_text("{}")
    environment = {"python": "3.11", "device": "cpu", "commit": "abc", "packages": {"ray": "2"}}
    (folder / "environment.json").write_text(json.dumps(environment))
    study.ledger.write(FINISHED, trial="c-s0", step=20, metrics={})
    assert study.unsent() == ["c-s0"]
    Uploader(home, study.name).look()
    assert study.unsent() == []
    run = study.runs(client)["c-s0"]
    assert run.info.status == "FINISHED"
    assert [step for step, _, _ in study.points(client, "c-s0")] == [0, 10, 20]
    assert study.points(client, "c-s0")[1] == (10, 1 / 11, 1010_000)  # the row's own time, in ms
    assert run.data.metrics["spec/optim.lr"] == 0.1 and "spec/text.x" not in run.data.metrics
    assert run.data.params["optim.kind"] == "sgd" and run.data.params["optim.lr"] == "0.1"
    tags = run.data.tags
    assert (tags[names.STATE], tags[names.SEED], tags[names.CELL]) == (FINISHED, "0", "c")
    assert (tags[names.DEVICE], tags[names.COMMIT], tags[names.VERSIONS]) == ("cpu", "abc", "python 3.11, ray 2")
    assert names.SPEC not in tags  # longer than a tag; the artifact has it
    assert {file.path for file in client.list_artifacts(run.info.run_id)} == {"spec.json", "environment.json"}
    parent = client.get_run(tags["mlflow.parentRunId"])
    assert parent.data.tags[names.ROLE] == names.STUDY
    assert [file.path for file in client.list_artifacts(parent.info.run_id)] == ["study.toml"]


def test_points_arrive_once_while_the_trial_runs(study, home, client):
    study.plan("c-s0")
    follower = Uploader(home, study.name)
    follower.look()
    study.start("c-s0")
    study.rows("c-s0", 0, 10)
    follower.look()
    assert study.runs(client)["c-s0"].info.status == "RUNNING"
    study.rows("c-s0", 20)
    follower.look()
    follower.look()
    assert [step for step, _, _ in study.points(client, "c-s0")] == [0, 10, 20]


def test_a_trial_that_computes_steps_again_sends_none_twice(study, home, client):
    study.plan("c-s0")
    study.start("c-s0")
    study.rows("c-s0", 0, 10, 20)
    first = Uploader(home, study.name)
    first.look()
    study.ledger.write(PAUSED, trial="c-s0", step=20)
    first.look()
    assert study.runs(client)["c-s0"].info.status == "KILLED"
    study.start("c-s0")
    study.rows("c-s0", 10, 20, 30, **{"train/loss": 0.5})  # from a checkpoint at step 10
    second = Uploader(home, study.name)  # of the next driver
    second.look()
    assert study.runs(client)["c-s0"].info.status == "RUNNING"
    study.ledger.write(FINISHED, trial="c-s0", step=30)
    second.look()
    assert len(study.runs(client)) == 1
    assert [step for step, _, _ in study.points(client, "c-s0")] == [0, 10, 20, 30]


def test_an_uploader_that_was_killed_before_it_wrote_down_what_it_sent(study, home, client):
    folder = study.plan("c-s0")
    study.start("c-s0")
    study.rows("c-s0", 0, 10)
    Uploader(home, study.name).look()
    (folder / "uploaded.json").unlink()
    study.rows("c-s0", 0, 10, 20, **{"train/loss": 0.5})  # the trial started over meanwhile
    study.ledger.write(FINISHED, trial="c-s0", step=20)
    Uploader(home, study.name).look()
    assert len(study.runs(client)) == 1
    assert [step for step, _, _ in study.points(client, "c-s0")] == [0, 10, 20]


@pytest.mark.parametrize("kept", ["kept", "lost"])
def test_a_study_whose_ledger_was_deleted_keeps_one_run_a_trial(study, home, client, kept):
    for trial in ("c-s0", "c-s1"):
        study.plan(trial)
        study.start(trial)
        study.rows(trial, 0, 10)
        study.ledger.write(FINISHED, trial=trial, step=10)
    Uploader(home, study.name).look()
    (study.folder / "ledger.jsonl").unlink()
    if kept == "lost":
        (study.folder / "uploaded.json").unlink()
    again = Study(home, study.name)
    follower = Uploader(home, study.name)
    for trial in ("c-s0", "c-s1", "c-s2"):
        again.plan(trial)
        again.start(trial)
        again.rows(trial, 0)
        follower.look()
        again.rows(trial, 10, 20)
        again.ledger.write(FINISHED, trial=trial, step=20)
        follower.look()
        assert [step for step, _, _ in again.points(client, trial)] == [0, 10, 20]
        assert again.runs(client)[trial].info.status == FINISHED.upper()
    experiment = client.get_experiment_by_name(study.name).experiment_id
    assert len(client.search_runs([experiment])) == 4  # the study's own and three trials
    assert again.unsent() == []


def test_values_that_are_not_finite_are_counted_not_logged(study, home, client):
    study.plan("c-s0")
    study.start("c-s0")
    study.rows("c-s0", 0, 10, **{"train/loss": 1.0})
    study.rows("c-s0", 20, **{"train/loss": math.inf, "odd@name=[x]": 2.0, "/../up": 1.0})
    study.ledger.write(FAILED, trial="c-s0", step=20, cause="ValueError: no")
    Uploader(home, study.name).look()
    run = study.runs(client)["c-s0"]
    assert [step for step, _, _ in study.points(client, "c-s0")] == [0, 10]
    assert json.loads(run.data.tags[names.NON_FINITE]) == {"train/loss": {"count": 1, "first": 20}}
    assert run.info.status == "FAILED" and run.data.tags[names.CAUSE] == "ValueError: no"
    assert {"odd_name__x_", "up"} < run.data.metrics.keys()


def test_a_long_trial_arrives_in_batches(study, home, client):
    study.plan("c-s0", **{f"field{number}": number for number in range(150)})
    study.start("c-s0")
    study.rows("c-s0", *range(700), **{"train/loss": 1.0, "a": 2.0, "b": 3.0})
    study.ledger.write(FINISHED, trial="c-s0", step=699)
    Uploader(home, study.name).look()
    assert [step for step, _, _ in study.points(client, "c-s0", "b")] == list(range(700))
    assert len(study.runs(client)["c-s0"].data.params) == 154


def test_another_store_gets_everything(study, home, tmp_path, monkeypatch):
    study.plan("c-s0")
    study.start("c-s0")
    study.rows("c-s0", 0)
    study.ledger.write(FINISHED, trial="c-s0", step=0)
    Uploader(home, study.name).look()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/other.db")
    assert study.unsent() == ["c-s0"]
    Uploader(home, study.name).look()
    assert study.unsent() == []
    from mlflow.tracking import MlflowClient

    assert [step for step, _, _ in study.points(MlflowClient(tracking.uri_of(home)), "c-s0")] == [0]


@pytest.mark.parametrize("state", [RUNNING, FINISHED])
def test_a_damaged_trial_is_named_and_the_others_are_sent(study, home, client, state, capfd):
    for trial in ("a-s0", "b-s0", "c-s0", "d-s0"):
        study.plan(trial)
        study.start(trial)
        study.rows(trial, 0)
        if state == FINISHED:
            study.ledger.write(FINISHED, trial=trial, step=0)
    rows = study.folder / "trials" / "a-s0" / "rows.jsonl"
    good = rows.read_text()
    rows.write_text(good + "garbage\n")
    study.rows("b-s0", 10)
    (study.folder / "trials" / "b-s0" / "rows.jsonl").write_text('{"x":1}\n')
    follower = Uploader(home, study.name)
    follower.look()
    follower.look()
    assert study.runs(client).keys() == {"c-s0", "d-s0"}
    assert follower.refused.startswith(f"trial a-s0: {rows}, line 2: not JSON: 'garbage'; delete the line")
    assert follower.refused.endswith("(and 1 more, see uploader.log)")
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("trial ")]
    assert [line.split(", ")[0].rsplit("/", 2)[1] for line in said] == ["a-s0", "b-s0"]  # once each
    assert study.unsent()[:2] == ["a-s0", "b-s0"]
    rows.write_text(good)
    Uploader(home, study.name).look()
    assert study.runs(client).keys() == {"a-s0", "c-s0", "d-s0"}


@pytest.mark.parametrize("content", ["[1]", "5", "{", "[" * 100_000, '{"run": 5}'], ids=range(5))
def test_damaged_side_files_are_as_good_as_none(study, home, client, content):
    folder = study.plan("c-s0")
    study.start("c-s0")
    study.rows("c-s0", 0, 10)
    study.ledger.write(FINISHED, trial="c-s0", step=10)
    for path in (folder / "uploaded.json", folder / "environment.json", study.folder / "uploaded.json"):
        path.write_text(content)
    assert study.unsent() == ["c-s0"]
    Uploader(home, study.name).look()
    for path in (folder / "uploaded.json", study.folder / "uploaded.json"):
        path.write_text(content)
    Uploader(home, study.name).look()
    assert study.unsent() == [] and len(study.runs(client)) == 1
    assert [step for step, _, _ in study.points(client, "c-s0")] == [0, 10]


def start_child(home, study):
    command = [sys.executable, "-m", "orchestrator.record.uploader", str(home), study.name]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, **pipes)


def test_a_dead_server_is_given_up(study, home, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    study.plan("c-s0")
    study.start("c-s0")
    study.ledger.write(FINISHED, trial="c-s0", step=0)
    out, err = start_child(home, study).communicate("finish\n", timeout=60)
    assert out == "[Errno 111] Connection refused\n" and err == ""
    assert study.unsent() == ["c-s0"]


@pytest.mark.parametrize("given", [False, True])
def test_a_folder_in_the_place_of_the_store_is_named(tmp_path, monkeypatch, given):
    (tmp_path / "mlflow.db").mkdir()
    if given:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    with pytest.raises(InputError, match=f"{tmp_path}/mlflow.db is a folder where MLflow's database should be"):
        tracking.uri_of(tmp_path)


def test_a_home_that_a_sqlite_uri_cannot_name_is_refused(tmp_path):
    with pytest.raises(InputError, match="MLflow's store cannot be at"):
        tracking.uri_of(tmp_path / "a?b")


@pytest.mark.parametrize("login", ["u:se/cret", "user:s@e:c/ret"])
def test_a_password_that_is_not_escaped_is_refused_and_not_shown(tmp_path, monkeypatch, login):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://{login}@127.0.0.1:9")
    with pytest.raises(InputError) as caught:
        tracking.uri_of(tmp_path)
    assert str(caught.value).startswith("MLFLOW_TRACKING_URI http://***@127.0.0.1:9: its port is no number; ")


def test_the_uploader_ends_with_its_driver(study, home):
    study.plan("c-s0")
    study.start("c-s0")
    child = start_child(home, study)
    child.stdin.close()  # what the system does as a driver dies
    assert child.wait(timeout=60) == 1
    child.stdout.close()
    child.stderr.close()


@pytest.mark.parametrize("name", ["train/loss", "a b", "val/ünïcode", "x.y-z:1"])
def test_good_names_stay(name):
    assert tracking.safe_name(name) == name


@pytest.mark.parametrize("name", ["a=b", "", "..", "/", "./a/../../b", "x" * 300, "a\nb", "🙂", "[0]"])
def test_bad_names_become_ones_that_mlflow_takes(name):
    from mlflow.utils.validation import _validate_metric_name

    _validate_metric_name(tracking.safe_name(name))


def test_whole_rows_stay_together():
    rows = [{"step": step, "metrics": dict.fromkeys(range(300), 1.0)} for step in range(7)]
    batches = list(uploader._batches(rows))
    assert [len(batch) for batch in batches] == [2, 2, 2, 1]
    assert [row["step"] for batch in batches for row in batch] == list(range(7))
    assert list(uploader._batches([])) == [[]]
