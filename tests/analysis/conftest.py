"""A real MLflow sqlite store with small studies in it, written through MlflowClient in the words of names.py."""

from __future__ import annotations

import base64
import json
import math
import shutil
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from analysis import names


@dataclass
class Trial:
    """What one run is to hold."""

    arm: str
    seed: int
    value: float | None  # the last one; None: it logged nothing
    axes: Mapping[str, Any] = field(default_factory=dict)
    topology: Mapping[str, Any] = field(default_factory=lambda: {"kind": "cascaded"})
    state: str = names.FINISHED
    cause: str = ""
    p: Any = None  # (K+1, K+1), or network -> that
    reached: int = 100  # step of its last row; it was to have 100
    extra: Mapping[str, Any] = field(default_factory=dict)  # of its spec
    depths: Sequence[Mapping[str, Any]] = ()  # lines of depths.jsonl
    more: Mapping[str, float] = field(default_factory=dict)  # metrics with the same value in each row
    picture: bytes | None = None  # PNG

    @property
    def cell(self) -> str:
        return sha256(json.dumps([self.arm, dict(self.axes)]).encode()).hexdigest()[:12]

    def spec(self, workload: str) -> dict[str, Any]:
        model = {"width": 64, "depth": 4} if workload == "llm" else {"width": 50, "depth": 3, "rank": 4}
        spec = {
            "workload": workload,
            "seed": self.seed,
            "model": model,
            "topology": dict(self.topology),
            "optim": {"kind": "adamw", "lr": self.axes.get("optim.lr", 1e-3)},
            "train": {"steps": 100},
        }
        return spec | dict(self.extra)

    def tags(self, study: str, workload: str) -> dict[str, str]:
        tags = {
            names.ROLE: names.TRIAL,
            names.STUDY_NAME: study,
            names.WORKLOAD: workload,
            names.TRIAL_ID: f"{self.cell}-s{self.seed}",
            names.CELL: self.cell,
            names.ARM: self.arm,
            names.SEED: str(self.seed),
            names.STATE: self.state,
            names.CAUSE: self.cause,
            names.AXES: json.dumps(dict(self.axes)),
            names.STEPS: "100",
            names.SPEC: json.dumps(self.spec(workload)),
            names.COMMIT: "0123abcd",
            names.DEVICE: "cpu",
            names.VERSIONS: "python 3.11.4, torch 2.13.0",
        }
        return {tag: value for tag, value in tags.items() if value and len(value) <= names.SPEC_LIMIT}


def falling(trial: Trial, share: float) -> float:
    """The default curve: from 3 times the last value down to it."""
    return float(trial.value or 0.0) * (1 + 2 * (1 - share))


def snapshot(p: Any, trained: Any = None, mask: Any = None) -> dict[str, Any]:
    """A network's entry in topology.json."""
    p = np.asarray(p, dtype=float)
    upper = np.triu(np.ones(p.shape, dtype=bool), 1)
    return {
        "kind": "ancre",
        "depth": len(p) - 1,
        "rule": "softmax",
        "normalization": "ingoing",
        "temperature": 0.1,
        "inner_residual": "drop",
        "mask": mask,
        "p": p.tolist(),
        "c": None,
        "trained": (upper if trained is None else np.asarray(trained)).tolist(),
    }


def random_p(rng: np.random.Generator, depth: int, common: Any = 0.0, noise: float = 1.0) -> np.ndarray:
    """Softmax columns of logits that seeds share in `common`."""
    weight = np.triu(np.exp(common + noise * rng.normal(size=(depth + 1, depth + 1))), 1)
    weight[:, 1:] /= weight.sum(axis=0)[1:]
    return weight


class Recorder:
    """Writes studies into one store."""

    def __init__(self, folder: Path) -> None:
        from mlflow.tracking import MlflowClient

        self.folder = folder
        self.uri = f"sqlite:///{folder / 'mlflow.db'}"
        with warnings.catch_warnings():  # MLflow 3.17 sets up its tables in a way that SQLAlchemy 2.1 deprecates
            warnings.filterwarnings("ignore", message="The ``noload`` loader strategy")
            self.client = MlflowClient(self.uri)
        self.blank = shutil.copy(folder / "mlflow.db", folder / "blank.db")  # making a store takes seconds

    def study(
        self,
        name: str,
        trials: Sequence[Trial],
        *,
        seeds: Sequence[int] = (0, 1, 2),
        metric: str = names.VAL_PERPLEXITY,
        workload: str = "llm",
        parent: bool = True,
        tags: Mapping[str, str] | None = None,
        curve: Callable[[Trial, float], float] = falling,
    ) -> str:
        """One experiment with its parent run and a run per trial; its id."""
        experiment = self.client.create_experiment(name, artifact_location=str(self.folder / "artifacts"))
        if parent:
            self._parent(experiment, name, trials, seeds, metric, workload, tags or {})
        for trial in trials:
            self._trial(experiment, name, trial, metric, workload, curve)
        return experiment

    def _parent(
        self,
        experiment: str,
        name: str,
        trials: Sequence[Trial],
        seeds: Sequence[int],
        metric: str,
        workload: str,
        tags: Mapping[str, str],
    ) -> None:
        held = {
            names.ROLE: names.STUDY,
            names.STUDY_NAME: name,
            names.WORKLOAD: workload,
            names.HYPOTHESIS: f"Learned connections beat cascaded ones in {name}.",
            names.PLANNED_SEEDS: json.dumps(list(seeds)),
            names.METRIC: metric,
            names.MODE: "min",
            names.ARMS: json.dumps(planned_arms(trials)),
        }
        run = self.client.create_run(experiment, tags=held | dict(tags)).info.run_id
        self.client.log_text(run, f'name = {json.dumps(name)}\n[sampler]\nkind = "grid"\n', names.STUDY_FILE)

    def _trial(
        self,
        experiment: str,
        name: str,
        trial: Trial,
        metric: str,
        workload: str,
        curve: Callable[[Trial, float], float],
    ) -> None:
        from mlflow.entities import Metric

        run = self.client.create_run(experiment, tags=trial.tags(name, workload)).info.run_id
        now = int(time.time() * 1000)
        points = []
        if trial.value is not None:
            shares = [k / 5 for k in range(6)]
            values = [*(curve(trial, share) for share in shares[:-1]), trial.value]
            points = [Metric(metric, v, now, round(s * trial.reached)) for s, v in zip(shares, values, strict=True)]
            points.append(Metric("tokens/s", 1000.0, now, trial.reached))
            points += [Metric(k, v, now, round(s * trial.reached)) for k, v in trial.more.items() for s in shares]
        points += [Metric(names.AXIS_METRIC + axis, v, now, 0) for axis, v in trial.axes.items() if type(v) is float]
        self.client.log_batch(run, metrics=points)
        if trial.p is not None:
            networks = trial.p if isinstance(trial.p, dict) else {"decoder": trial.p}
            document = {"version": 1, "networks": {name: snapshot(p) for name, p in networks.items()}}
            self.client.log_text(run, json.dumps(document), names.TOPOLOGY_FILE)
        if trial.depths:
            self.client.log_text(run, "".join(f"{json.dumps(look)}\n" for look in trial.depths), names.DEPTHS_FILE)
        if trial.picture is not None:
            with TemporaryDirectory() as folder:
                file = Path(folder) / names.SAMPLES_FILE
                file.write_bytes(trial.picture)
                self.client.log_artifact(run, str(file))
        if len(json.dumps(trial.spec(workload))) > names.SPEC_LIMIT:
            self.client.log_text(run, json.dumps(trial.spec(workload)), names.SPEC_FILE)


def planned_arms(trials: Sequence[Trial]) -> dict[str, Any]:
    """names.ARMS of a grid that holds these trials."""
    arms: dict[str, Any] = {}
    for trial in trials:
        arm = arms.setdefault(trial.arm, {"cells": set(), "axes": {}})
        arm["cells"].add(trial.cell)
        for axis, value in trial.axes.items():
            values = arm["axes"].setdefault(axis, [])
            values += [] if value in values else [value]
    return {name: {"configurations": len(arm["cells"]), "axes": arm["axes"]} for name, arm in arms.items()}


ANCRE = {"kind": "ancre", "inner_residual": "drop", "normalization": "ingoing"}
RATES = (1e-3, 3e-3)
HOSTILE = "<script>alert(\"1\")</script> & 'quoted' $x^2$"


def _small() -> list[Trial]:
    """Two arms, two rates, three seeds. drop at 3e-3 is best: 11, 12, 13."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(5, 5))
    level = {("cascaded", 1e-3): 16.0, ("cascaded", 3e-3): 15.0, ("drop", 1e-3): 14.0, ("drop", 3e-3): 12.0}
    return [
        Trial(
            arm,
            seed,
            value + seed - 1,
            {"optim.lr": rate} | ({"topology.temperature": 0.1} if arm == "drop" else {}),
            ANCRE if arm == "drop" else {"kind": "cascaded"},
            p=random_p(rng, 4, 2 * common, 0.3) if arm == "drop" else None,
        )
        for (arm, rate), value in level.items()
        for seed in range(3)
    ]


def _mixed() -> list[Trial]:
    """One cell of each status, named by its arm."""
    diverged = {"state": names.DIVERGED, "cause": "train/loss is not finite at step 7"}
    return [
        *(Trial("complete", seed, 20.0 + seed) for seed in range(3)),
        *(Trial("incomplete", seed, 10.0 + seed) for seed in range(2)),
        Trial("incomplete", 2, 9.0, state=names.RUNNING, reached=40),
        *(Trial("stopped", seed, 5.0, state=names.STOPPED, reached=20) for seed in range(3)),
        Trial("unfinished", 0, 3.0, state=names.PAUSED, reached=10),
        *(Trial("diverged", seed, 1.0) for seed in range(2)),
        Trial("diverged", 2, None, **diverged),
        Trial("failed", 0, 2.0, state=names.FAILED, cause="out of memory"),
        *(Trial("not-a-number", seed, math.nan if seed else 2.0) for seed in range(3)),
        *(Trial("infinite", seed, math.inf) for seed in range(3)),
    ]


def _linear() -> list[Trial]:
    """Loss 2 exp(-rate t) at t = 20 of two shortcuts."""
    level = {"cascaded": 0.03, "0:2": 1e-12}
    topology = {"cascaded": {"kind": "cascaded"}, "0:2": {"kind": "shortcuts", "shortcuts": "0:2"}}
    return [
        Trial(arm, seed, value * (1 + 0.1 * seed), topology=topology[arm], extra={"optim": {"kind": "sgd", "lr": 1e-3}})
        for arm, value in level.items()
        for seed in range(3)
    ]


def _deep() -> list[Trial]:
    """Time at goal of one task at three depths: learned connections gain at each, 8 blocks of them beat 16 plain."""
    rng = np.random.default_rng(1)
    level = {"cascaded": {4: 100.0, 8: 200.0, 16: 300.0}, "drop": {4: 150.0, 8: 500.0, 16: 600.0}}
    spec = {
        "env": {"kind": "humanoid", "control_dt": 0.03, "episode_length": 1000},
        "train": {"env_steps": 100_000_000},
    }
    seconds = {names.TIME_ROLLOUT: 60.0, names.TIME_LEARN: 240.0, names.TIME_EVALUATE: 30.0, names.TIME_SYNC: 1.0}
    return [
        Trial(
            arm,
            seed,
            value + 5.0 * seed,
            {"model.num_blocks": blocks},
            ANCRE if arm == "drop" else {"kind": "cascaded"},
            p={name: random_p(rng, blocks) for name in ("actor", "phi", "psi")} if arm == "drop" else None,
            reached=98_946_048,
            extra=spec | {"model": {"num_blocks": blocks, "width": 256, "activation": "swish", "layer_norm": True}},
            more={name: held * blocks for name, held in seconds.items()} | {names.ENV_STEPS_PER_S: 18_000.0},
        )
        for arm, levels in level.items()
        for blocks, value in levels.items()
        for seed in range(3)
    ]


def look(step: int, growth: float) -> dict[str, Any]:
    """A line of depths.jsonl, of K = 4 blocks whose states grow by a factor each."""
    states = [growth**j for j in range(5)]
    return {
        "step": step,
        names.DEPTH_STATE_RMS: states,
        names.DEPTH_OUTPUT_RMS: states[1:],
        names.DEPTH_COSINE: [0.5, 0.75, 0.875, 0.9375],
        names.DEPTH_GRADIENT_NORM: [0.1, None, 0.3, 0.4],
    }


def _measured() -> list[Trial]:
    """Networks that told their memory and looked into their depths."""
    bytes_ = dict(zip(names.MEMORY, (1e9, 1e9, 2e9, 8e9), strict=True))
    told = bytes_ | {name + names.ESTIMATED: 1.25 * held for name, held in bytes_.items()}
    told |= {names.MEMORY_PEAK: 13.5e9, names.TOKENS_PER_S: 99_900.0, names.MFU: 0.22}
    return [
        Trial(
            arm,
            seed,
            value + seed,
            topology={"kind": kind},
            depths=[look(50, 1.0), look(100, growth + 0.1 * seed)],
            more=told | {names.PERPLEXITY_GALORE_COMPAT: value - 0.6},
        )
        for arm, kind, value, growth in (("cascaded", "cascaded", 31.0, 2.0), ("ancre", "ancre", 30.0, 1.0))
        for seed in range(2)
    ]


PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==")


def _drawn() -> list[Trial]:
    """Networks that drew images, with guidance and without; the judge of 50,000 is the published one."""
    network = {"kind": "torch-fidelity"}
    return [
        Trial(
            arm,
            seed,
            value + seed,
            topology={"kind": kind},
            picture=PIXEL,
            more={"guided/fid": value / 2 + seed, "val/precision": 0.4, "guided/precision": 0.5},
            extra={
                "model": {"width": 384, "depth": 12, "patch": 2},
                "evaluate": {"samples": 50_000, "features": network, "sampling": {"cfg": 1.5}},
            },
        )
        for arm, kind, value in (("cascaded", "cascaded", 70.0), ("ancre", "ancre", 60.0))
        for seed in range(2)
    ]


def rising(trial: Trial, share: float) -> float:
    """From 0 up to the last value."""
    return float(trial.value or 0.0) * share


def _many() -> list[Trial]:
    """Twelve arms, one seed each."""
    return [Trial(f"arm-{k}", 0, 10.0 + k, {"optim.lr": 1e-3}) for k in range(12)]


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    """The store, with the studies that the tests read."""
    recorder = Recorder(tmp_path_factory.mktemp("store"))
    recorder.study("small", _small(), tags={names.PUBLISHED: "table4"})
    recorder.study("mixed", _mixed())
    recorder.study("linear", _linear(), metric=names.TRAIN_LOSS, workload="lnn")
    upwards = {names.MODE: "max"}
    recorder.study("deep", _deep(), metric=names.EVAL_TIME_AT_GOAL, workload="crl", tags=upwards, curve=rising)
    recorder.study("many", _many(), seeds=[0])
    recorder.study("measured", _measured(), seeds=[0, 1], tags={names.PUBLISHED: "table5"})
    recorder.study(
        "drawn", _drawn(), seeds=[0, 1], metric=names.VAL_FID, workload="dit", tags={names.PUBLISHED: "table3"}
    )
    recorder.study("one-seed", [trial for trial in _small() if trial.seed == 0], seeds=[0])
    recorder.study("all-diverged", [Trial("a", seed, None, state=names.DIVERGED, cause="NaN") for seed in range(3)])
    recorder.study("all-nan", [Trial("a", seed, math.nan) for seed in range(3)])
    recorder.study("just-started", [])
    recorder.study("no-run", [], parent=False)
    recorder.study("no-parent", _small()[:6], parent=False)
    recorder.study(
        "hostile",
        [Trial(HOSTILE, 0, 3.0, {"data.path": HOSTILE}, {"kind": "cascaded"}, cause=HOSTILE, state=names.STOPPED)],
        tags={names.HYPOTHESIS: HOSTILE, names.PUBLISHED: HOSTILE},
    )
    recorder.study("large-spec", [Trial("a", 0, 1.0, extra={"note": "x" * 6000})], seeds=[0])
    return recorder


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    """What tests build their own records from."""
    return SimpleNamespace(
        Trial=Trial, Recorder=Recorder, snapshot=snapshot, random_p=random_p, hostile=HOSTILE, pixel=PIXEL
    )
