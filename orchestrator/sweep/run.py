"""Start a study, or go on with it: which of its trials are left, in which Ray they run, and how it ends.

Content is identity: a trial that has ended is not run again, so starting the same study twice runs nothing the second
time, and does not even start Ray. A study with more seeds or cells runs only the new ones.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis import names
from analysis.page import size
from analysis.store import default_home, redacted
from models.topology.base import TopologySpec
from orchestrator.errors import InputError, did_you_mean
from orchestrator.record import jsonl, lock, log
from orchestrator.record.ledger import ATTEMPT, History, Ledger, Record
from orchestrator.record.spool import ERROR_FILE
from orchestrator.record.tracking import uri_of
from orchestrator.record.uploader import unsent
from orchestrator.study.plan import Plan, plan
from orchestrator.study.spec import Study, check_name
from orchestrator.sweep import cluster
from orchestrator.sweep.interrupt import Interrupt
from orchestrator.sweep.progress import LiveProgress, Progress, duration
from orchestrator.sweep.sweep import Sweep
from orchestrator.sweep.upload_process import UploadProcess
from orchestrator.workloads.base import TrialSpec, canonical
from search_spaces.domains import Choices, Domain

NOT_PREPARED = {"seed", "topology", "optim", "train"}  # parts of a trial that no preparation depends on
COMPARISON = ("workload", "trial", "arms", "axes", "sampler")  # what says which cells a study has
HOPELESS = 10  # times the memory that there is
UPLOAD_SECONDS = 60.0  # to wait for the tracking store at the end, or a tenth of what the sweep took


@dataclass(frozen=True)
class Summary:
    """How a study stands after `start`."""

    study: str
    trials: Mapping[str, int]  # state -> how many
    ran: int  # trials that ended now
    left: int  # trials not started, for the budget was spent
    unsent: int  # trials whose MLflow run is not up to date
    seconds: float

    @property
    def exit_code(self) -> int:
        return 1 if self.trials.get(names.FAILED) else 0

    def text(self) -> str:
        states = ", ".join(f"{count} {state}" for state, count in self.trials.items())
        return f"{self.study}: {states}; {self.ran} ran now, in {duration(self.seconds)}"


def resume(name: str, home: str | Path | None = None, *, address: str | None = None) -> Summary:
    """Go on with a study that was started before, from its own folder.

    Raises:
        InputError: there is no such study; and what `start` raises.
    """
    home = Path(home or default_home())
    file = home / "studies" / check_name(name) / names.STUDY_FILE
    if not file.is_file():
        known = [path.parent.name for path in (home / "studies").glob(f"*/{names.STUDY_FILE}")]
        raise InputError(f"no study {name!r} was started in {home}{did_you_mean(name, known)}")
    study = Study.read(file)
    if study.name != name:
        raise InputError(f"{file}: name: should be {name!r}, as its folder, got {study.name!r}")
    return start(study, home, address=address)


def start(study: Study, home: str | Path | None = None, *, address: str | None = None) -> Summary:
    """Run the trials of a study that have not ended yet.

    Args:
        home: folder of ledgers, checkpoints and, unless MLFLOW_TRACKING_URI says otherwise, MLflow's store; where not
            given, ANCRE_HOME or ./ancre-home.
        address: of a Ray cluster; where not given, Ray starts on this machine. A Ray that is initialised is used.

    Raises:
        InputError: the study cannot run, or another driver runs it. Nothing was started.
        KeyboardInterrupt: Ctrl-C; what was running is paused.
        SystemExit: SIGTERM, with 143; what was running is paused.
    """
    home = Path(home or default_home()).absolute()
    if address is not None:
        cluster.reach(address)
    uri_of(home)  # refuses a store that could not be written at the end
    folder = home / "studies" / study.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--home {home}: {error.strerror}; pass another or set ANCRE_HOME") from error
    with lock.hold(folder) as sign, Interrupt(folder) as interrupt:
        history = History(folder)
        number = history.attempts + 1
        sign(number)
        planned = plan(_with_earlier_seeds(study, folder))
        _check_same_comparison(planned, history, home)
        attempt = Attempt(planned, history, number, home, interrupt)
        try:
            return attempt.run(address)
        except KeyboardInterrupt:
            interrupt.leave()
            raise


def _with_earlier_seeds(study: Study, folder: Path) -> Study:
    """With the seeds that the same comparison was started with before: `--seeds 3..5` adds to them."""
    try:
        before = Study.read(folder / names.STUDY_FILE)
    except InputError:  # none, or written by another version
        return study
    if any(getattr(study, field) != getattr(before, field) for field in COMPARISON):
        return study
    return study.model_copy(update={"seeds": tuple(dict.fromkeys(before.seeds + study.seeds))})


def _check_same_comparison(plan: Plan, history: History, home: Path) -> None:
    """A name stands for one comparison: what another definition ran would be ranked and reported beside this one's.

    More cells or seeds are the same comparison. Raises InputError where cells are gone or changed.
    """
    known = {cell.id for cell in plan.cells}
    gone = {record.cell for record in history.trials.values() if record.cell not in known and not _asked(plan, record)}
    if gone:
        raise InputError(
            f"study {plan.study.name!r} was started in {home} with {len(gone)} configurations that it no longer has, "
            f"such as {min(gone)}; give the changed study a name of its own (--set name=NEW) or another --home"
        )


def _asked(plan: Plan, record: Record) -> bool:
    """Whether a sampler that learns from results may have asked for this cell."""
    if not plan.open or record.arm not in plan.study.resolved:
        return False
    try:
        return bool(plan.study.cell(record.arm, record.axes).id == record.cell)
    except InputError:
        return False


class Attempt:
    """One driver's run of a study, while it holds the study's lock."""

    def __init__(self, plan: Plan, history: History, number: int, home: Path, interrupt: Interrupt) -> None:
        self._plan, self._study = plan, plan.study
        self._history, self._number = history, number
        self._sweep = Sweep(plan, history, number)
        self._home, self._folder = home, home / "studies" / plan.study.name
        self._interrupt = interrupt
        self._began = time.monotonic()
        elsewhere = "" if home == default_home().absolute() else f" --home {home}"
        self._again = f"ancre resume {self._study.name}{elsewhere}"

    def run(self, address: str | None) -> Summary:
        done = self._sweep.done
        reason = ""
        if self._sweep.left or self._unsent():
            if self._sweep.left:
                self._check(address)
            with UploadProcess(self._home, self._study.name) as uploader:
                if self._sweep.left:
                    self._train(address)
                reason = uploader.finish(max(UPLOAD_SECONDS, (time.monotonic() - self._began) / 10))
        summary = Summary(
            study=self._study.name,
            trials=dict(self._sweep.counts),
            ran=self._sweep.done - done,
            left=self._sweep.left,
            unsent=self._unsent(),
            seconds=time.monotonic() - self._began,
        )
        self._say(summary, reason)
        self._interrupt.leave()
        return summary

    def _unsent(self) -> int:
        return len(unsent(self._home, self._study.name, self._history))

    def _check(self, address: str | None) -> None:
        """What can be refused before Ray starts, and what trials share, made once."""
        if address is None:
            cluster.check_here(self._plan.resources)
            self._check_memory()
        cache = self._home / "cache"
        cache.mkdir(exist_ok=True)
        try:
            for topology in _topologies(self._plan):
                topology.check_ready()
            for trial in _sharing(self._plan):
                trial.prepare(cache)
        except ValueError as error:
            raise InputError(f"{self._study.source}: {error}") from error

    def _check_memory(self) -> None:
        """An estimate that is wrong by a factor of two forbids nothing; ten times what there is does."""
        plan = self._plan
        for side in plan.sides:
            if (needed := plan.needed(side)) > HOPELESS * plan.room:
                raise InputError(
                    f"{self._study.source}: a trial of {side.arm} needs {size(needed)} of memory, this machine has "
                    f"{size(plan.room)}"
                )

    def _train(self, address: str | None) -> None:
        cluster.configure()
        with cluster.connected(address):
            from orchestrator.sweep.engine import Context, run

            self._interrupt.take()
            memory = 0 if self._study.resources.gpus else self._plan.memory
            concurrent = cluster.concurrency(self._plan.resources, cluster.nodes(), memory)
            self._write_study()
            ledger = Ledger(self._folder)
            driver = str(lock.Owner.me(self._number))
            ledger.write(ATTEMPT, attempt=self._number, driver=driver, study=self._tags())
            self._sweep.open(ledger)
            progress = (LiveProgress if sys.stderr.isatty() else Progress)(self._sweep, self._folder)
            progress.say(
                f"{self._study.name}: {self._sweep.left} of {self._sweep.total} trials to run, {concurrent} at a time"
            )

            def asked_to_stop() -> bool:
                progress.tick()
                return self._interrupt.asked(progress.say)

            self._interrupt.orderly = True
            try:
                with progress:
                    run(Context(self._sweep, self._home, self._folder, asked_to_stop), concurrent)
            except Exception as error:
                if self._sweep.fault:  # a full disk, most often
                    raise InputError(f"{self._folder}: {self._sweep.fault}; mend it, then: {self._again}") from error
                raise
            finally:
                self._interrupt.orderly = False
                progress.tick()
                self._sweep.pause_all("interrupted")
                ledger.close()

    def _write_study(self) -> None:
        jsonl.replace(self._folder / names.STUDY_FILE, self._study.to_toml().encode())
        jsonl.replace(self._folder / names.ARMS_FILE, json.dumps(self._arms()).encode())

    def _tags(self) -> dict[str, str]:
        """What the study's own run in MLflow is tagged with."""
        tags = {
            names.ROLE: names.STUDY,
            names.STUDY_NAME: self._study.name,
            names.WORKLOAD: self._study.workload,
            names.HYPOTHESIS: self._study.hypothesis,
            names.PLANNED_SEEDS: json.dumps(self._study.seeds),
            names.METRIC: self._study.metric,
            names.MODE: self._study.mode,
            names.PUBLISHED: self._study.published or "",
            names.ARMS: json.dumps(self._arms()),
        }
        return {tag: value for tag, value in tags.items() if 0 < len(value) <= names.SPEC_LIMIT}

    def _arms(self) -> dict[str, Any]:
        return {
            side.arm: {
                "configurations": side.cells,
                "axes": {axis: _written(domain) for axis, domain in self._study.resolved[side.arm].axes.items()},
            }
            for side in self._plan.sides
        }

    def _say(self, summary: Summary, reason: str) -> None:
        again = self._again
        lines = [summary.text()]
        if self._interrupt.signal:
            paused = self._sweep.counts[names.PAUSED]
            lines.append(f"stopped: {paused} paused, {summary.left} not started; resume with: {again}")
        elif summary.left:
            hours = self._study.budget.hours
            lines.append(f"the budget of {hours:g} hours is spent, {summary.left} trials are left; go on with: {again}")
        if summary.trials.get(names.FAILED):
            lines.append(f"what failed is in {self._folder}/trials/TRIAL/{ERROR_FILE}; run it again with: {again}")
        if summary.unsent:
            place = redacted(uri_of(self._home))
            why = f" ({redacted(reason)})" if reason else ""
            lines.append(f"tracking: {summary.unsent} runs were not sent to {place}{why}; send them with: {again}")
        print("\n".join(lines), file=sys.stderr, flush=True)
        for line in lines:
            log.note(self._folder, line)


def _topologies(plan: Plan) -> set[TopologySpec]:
    """Every topology that some trial is built with."""
    parts = (part for cell in plan.cells for part in vars(cell.trial).values())
    return {part for part in parts if isinstance(part, TopologySpec)}


def _sharing(plan: Plan) -> Iterator[TrialSpec]:
    """One trial for each way to prepare."""
    seen = set()
    for cell in plan.cells:
        fields = [field for field in type(cell.trial).model_fields if field not in NOT_PREPARED]
        key = tuple(canonical(getattr(cell.trial, field)) for field in fields)
        if key not in seen:
            seen.add(key)
            yield cell.trial


def _written(domain: Domain) -> Any:
    if isinstance(domain, Choices):
        return list(domain.values)
    return {"low": domain.low, "high": domain.high, "log": domain.log}
