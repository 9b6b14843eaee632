"""A home whose studies were written down event by event, and a server on it."""

import json
import threading
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from analysis import names
from orchestrator.record import jsonl
from orchestrator.record.ledger import ATTEMPT, PLANNED, Ledger
from orchestrator.record.spool import ROWS_FILE, Spool, row
from orchestrator.serve import aside, watch
from orchestrator.serve.server import Server
from orchestrator.serve.site import Site

METRIC = "val/perplexity"
STEPS = 100
TAGS = {
    names.ROLE: names.STUDY,
    names.WORKLOAD: "llm",
    names.PLANNED_SEEDS: "[0, 1]",
    names.METRIC: METRIC,
    names.MODE: "min",
}


class Written:
    """One study's ledger and spools, as a driver and its trials write them."""

    def __init__(self, home: Path, name: str = "mine", **tags: str) -> None:
        self.home, self.name = home, name
        self.folder = home / "studies" / name
        self.folder.mkdir(parents=True)
        self.ledger = Ledger(self.folder)
        self.attempt = 0
        self.begin(**tags)

    def begin(self, **tags: str) -> None:
        """The next attempt."""
        self.attempt += 1
        self.ledger.write(ATTEMPT, attempt=self.attempt, study={**TAGS, names.STUDY_NAME: self.name, **tags})

    def plan(self, cell: str, arm: str = "keep", seeds: int = 2, **axes: Any) -> None:
        spec = {"workload": "llm", "model": {"depth": 4}, "topology": {"kind": "ancre"}}
        planned = {"event": PLANNED, "cell": cell, "arm": arm, "axes": axes, "steps": STEPS}
        self.ledger.write_all(
            {**planned, "trial": f"{cell}-s{seed}", "seed": seed, "spec": {**spec, "seed": seed}}
            for seed in range(seeds)
        )

    def run(self, trial: str) -> None:
        self.ledger.write(names.RUNNING, trial=trial, attempt=self.attempt)

    def rows(self, trial: str, values: Mapping[int, float]) -> None:
        folder = self.folder / "trials" / trial
        folder.mkdir(parents=True, exist_ok=True)
        spool = Spool(folder / ROWS_FILE)
        for step, value in values.items():
            spool.append(step, row(1000.0 + step, {METRIC: value}))
        spool.close()

    def end(self, trial: str, value: float, state: str = names.FINISHED, cause: str = "") -> None:
        self.ledger.write(state, trial=trial, step=STEPS, metrics=jsonl.plain({METRIC: value}), cause=cause)


class Asked:
    """An answer of the server."""

    def __init__(self, response: HTTPResponse) -> None:
        self.status, self.headers = response.status, response.headers
        self.text = response.read().decode()

    @property
    def parts(self) -> dict[str, str]:
        """Name -> HTML."""
        return {name: html for name, (_, html) in json.loads(self.text)["parts"].items()}

    @property
    def seen(self) -> str:
        return ",".join(f"{name}:{version}" for name, (version, _) in json.loads(self.text)["parts"].items())


class Client:
    def __init__(self, server: Server) -> None:
        self.server, self.url = server, server.url

    def ask(self, path: str, method: str = "GET", **headers: str) -> Asked:
        connection = HTTPConnection("127.0.0.1", self.server.server_port, timeout=60)
        try:
            connection.request(method, path, headers=headers)
            return Asked(connection.getresponse())
        finally:
            connection.close()


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """Looks at the ledger, and draws, whenever it is asked."""
    monkeypatch.setattr(watch, "EVERY", 0.0)
    monkeypatch.setattr(watch, "FIGURES_EVERY", 0.0)
    for module in (watch, aside):
        monkeypatch.setattr(module, "SHARE", 1e9)
    with Server(Site(tmp_path), "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield Client(server)
        server.shutdown()
        thread.join()
