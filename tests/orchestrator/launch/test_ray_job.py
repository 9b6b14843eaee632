"""A job is submitted by Ray's own client to a stand-in for the job server, which looks at what arrives."""

import io
import json
import shlex
import zipfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from orchestrator.launch.job import TOKEN_FILE
from tests.orchestrator.launch.conftest import NAME

VERSION = {"version": "4", "ray_version": "2.60.0", "ray_commit": "", "session_name": "s"}


class Server(BaseHTTPRequestHandler):
    """The few requests of `ray job submit`."""

    def do_GET(self):
        self._authorized()
        self.answer(200, VERSION) if self.path == "/api/version" else self.answer(404, {})

    def do_PUT(self):
        self._authorized()
        self.server.packages.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(200, {})

    def do_POST(self):
        self._authorized()
        self.server.jobs.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        made = self.server.jobs[-1]["submission_id"]
        self.answer(200, {"job_id": made, "submission_id": made})

    def _authorized(self):
        self.server.tokens.add(self.headers.get("Authorization"))

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    with HTTPServer(("127.0.0.1", 0), Server) as server:
        server.packages, server.jobs, server.tokens = [], [], set()
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_the_study_and_the_code_arrive_with_the_token(launch, study_file, home, server, monkeypatch):
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    said = launch(study_file, "--on", "ray", "--submit", "--address", f"http://127.0.0.1:{server.server_port}")
    (token,) = home.glob(f"launches/*/{TOKEN_FILE}")
    assert server.tokens == {f"Bearer {token.read_text()}"}
    (job,), (package,) = server.jobs, server.packages
    with zipfile.ZipFile(io.BytesIO(package)) as archive:
        assert {"study.toml", "code/orchestrator/cli.py", "code/commit"} <= set(archive.namelist())
        assert not [name for name in archive.namelist() if TOKEN_FILE in name.split("/")]
    start = ["python", "-m", "orchestrator", "start", "study.toml", "--home", str(home), "--address", "auto"]
    assert shlex.split(job["entrypoint"]) == ["env", "PYTHONPATH=code", *start]
    assert job["submission_id"].startswith(f"ancre-{NAME}-") and job["submission_id"] in said


def test_a_server_that_is_not_there_is_one_line(launch, study_file):
    said = launch(study_file, "--on", "ray", "--submit", "--address", "http://127.0.0.1:1", code=2)
    assert said.count("\n") == 1 and "is written, but was not taken: " in said and "http://127.0.0.1:1" in said
