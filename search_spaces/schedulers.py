"""When a configuration is not worth going on with: none, asha, hyperband. Pure decisions; Ray only carries them out.
Of pbt only what it is told: `sweep.exploit` decides, by Ray's own rule.

Decided on cells, not on seeds, and among the cells of one arm, so that every arm gets the same brackets.

The rule. Rungs lie at steps grace, grace * factor, grace * factor^2, .. A seed's value at a rung is the one that it
reports first at or past the rung's step. A cell's value there is the mean over its seeds that got there so far. When a
seed gets to a rung, the n cells that have a value there (this one included) are ranked, equal values in order of
arrival; the cell goes on if it is among the best max(1, n // factor), and is stopped there otherwise. A stopped cell
stops all its seeds, also those that get to that rung later. Hence the best cell at a rung always goes on, and about one
in `factor` of the cells does, plus the few that came early (with n < factor only the best so far goes on).

A value that is not finite is no value: its cell never goes on, whatever the others did, and counts among the n as one
that others beat. As the seed that reported it will report no more, its cell is stopped at the next rung.

Racing. With `race = "mean"` all seeds of a cell run at once and decide by their mean. With `race = "first-seed"` a cell
has its first seed alone on the rungs; where that one gets to the end, the cell's other seeds run, and none of them is
stopped. So most of a sweep's time goes to seeds of cells that are worth it, and a stopped cell has one seed.

Hyperband runs asha several times over: bracket b starts at grace * factor^b. The cells of an arm are dealt to brackets
in their order, the more to a bracket the earlier it starts, in hyperband's proportions, and halved within a bracket.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

Decision: TypeAlias = Literal["continue", "stop"]
Mode: TypeAlias = Literal["min", "max"]
Event: TypeAlias = dict[str, Any]  # arm, cell, seed, rung, value (text where not finite), decision: strict JSON


class _Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class _EndlessSpec(_Spec):
    """Stops nothing."""

    @property
    def races(self) -> bool:
        return False

    def rungs(self, total_steps: int) -> list[int]:
        return []

    def build(self, mode: Mode = "min") -> Halving:
        return Halving(mode, grace=math.inf, factor=2, brackets=1)


class NoneSpec(_EndlessSpec):
    """Every trial runs to its end."""

    kind: Literal["none"] = "none"


class PbtSpec(_EndlessSpec):
    """Population based training (arXiv 1711.09846): the worst go on from the best one's weights, at other values."""

    kind: Literal["pbt"] = "pbt"
    interval: int = Field(gt=0)  # steps between two comparisons
    mutate: list[str] = Field(min_length=1)  # axes that change; cells that differ in these alone learn together
    quantile: float = Field(default=0.25, gt=0, le=0.5)  # of a population: so many are replaced, by one of so many
    resample: float = Field(default=0.25, ge=0, le=1)  # how often a value is drawn anew, and not taken from nearby
    seed: int = Field(default=0, ge=0)


class _HalvingSpec(_Spec):
    grace: int = Field(gt=0)  # step of the first rung
    factor: int = Field(default=3, ge=2)  # one in `factor` cells goes on
    race: Literal["mean", "first-seed"] = "mean"  # what of a cell's seeds is on the rungs

    @property
    def races(self) -> bool:
        """Whether a cell's other seeds wait for its first one."""
        return self.race == "first-seed"

    def rungs(self, total_steps: int) -> list[int]:
        """The steps at which a trial of `total_steps` may be stopped."""
        return list(takewhile(lambda rung: rung < total_steps, _rungs(self.grace, self.factor)))


class AshaSpec(_HalvingSpec):
    """Successive halving that stops (arXiv 1810.05934); race = "first-seed": other seeds for survivors alone."""

    kind: Literal["asha"] = "asha"

    def build(self, mode: Mode = "min") -> Halving:
        return Halving(mode, self.grace, self.factor, brackets=1)


class HyperbandSpec(_HalvingSpec):
    """Asynchronous hyperband: asha from several first rungs, as a hedge against values that mislead early."""

    kind: Literal["hyperband"] = "hyperband"
    brackets: int = Field(default=3, ge=1, le=10)

    def build(self, mode: Mode = "min") -> Halving:
        return Halving(mode, self.grace, self.factor, self.brackets)


AnyScheduler: TypeAlias = NoneSpec | AshaSpec | HyperbandSpec | PbtSpec
SCHEDULERS: Mapping[str, type[AnyScheduler]] = {
    "none": NoneSpec,
    "asha": AshaSpec,
    "hyperband": HyperbandSpec,
    "pbt": PbtSpec,
}


def _rungs(grace: float, factor: int) -> Iterator[int]:
    if math.isfinite(grace):
        rung = int(grace)
        while True:
            yield rung
            rung *= factor


class Halving:
    """The rung tables of a study, and what they decide. Restored by `replay` of the events that it recorded.

    `add` every cell of an arm in the plan's order before reports arrive: the order deals cells to brackets. A cell that
    reports unannounced is added then.
    """

    def __init__(self, mode: Mode, grace: float, factor: int, brackets: int) -> None:
        self._sign = 1.0 if mode == "min" else -1.0
        self._grace, self._factor = grace, factor
        self._deal = _deal(factor, brackets)
        self._cells: dict[str, dict[str, int]] = defaultdict(dict)  # arm -> cell -> bracket
        # (arm, bracket, rung) -> cell -> seed -> value, smaller is better; and the means, in order of arrival
        self._table: dict[tuple[str, int, int], dict[str, dict[int, float]]] = defaultdict(dict)
        self._means: dict[tuple[str, int, int], dict[str, float]] = defaultdict(dict)
        self._stopped: dict[tuple[str, str], float] = {}  # (arm, cell) -> rung
        self._events: list[Event] = []

    def add(self, arm: str, cell: str) -> None:
        cells = self._cells[arm]
        cells.setdefault(cell, self._deal[len(cells) % len(self._deal)])

    def bracket(self, arm: str, cell: str) -> int:
        """The bracket of a cell, 0 for the one that starts at `grace`."""
        self.add(arm, cell)
        return self._cells[arm][cell]

    def report(self, arm: str, cell: str, seed: int, step: int, value: float) -> Decision:
        """A seed of a cell reports the study's metric at a step: does it go on?

        Do not report rows without that metric, nor the last row: who got there has finished. Reporting a rung again
        (after a resume) changes nothing. Then write `events` down before acting on the decision.
        """
        if step >= self._stopped.get((arm, cell), math.inf):
            return "stop"
        bracket = self.bracket(arm, cell)
        diverged = not math.isfinite(value)
        for rung in _rungs(self._grace * self._factor**bracket, self._factor):
            if rung > step and not diverged:
                break
            if seed in self._table[arm, bracket, rung].get(cell, ()):
                continue
            self._record(arm, cell, seed, rung, value)
            decision = self._decide(arm, rung, cell)
            self._events.append(_event(arm, cell, seed, rung, value, decision))
            if decision == "stop":
                self._stopped[arm, cell] = rung
                return "stop"
        return "continue"

    def events(self) -> list[Event]:
        """What was recorded since the last call, for `replay`."""
        recorded, self._events = self._events, []
        return recorded

    def replay(self, events: Iterable[Event]) -> None:
        """Be as after these events, in their order; what they decided is not decided again."""
        for event in events:
            arm, cell, rung = event["arm"], event["cell"], event["rung"]
            self._record(arm, cell, event["seed"], rung, float(event["value"]))
            if event["decision"] == "stop":
                self._stopped[arm, cell] = rung

    def _record(self, arm: str, cell: str, seed: int, rung: int, value: float) -> None:
        at = arm, self.bracket(arm, cell), rung
        seeds = self._table[at].setdefault(cell, {})
        seeds[seed] = self._sign * value if math.isfinite(value) else math.inf
        self._means[at][cell] = sum(seeds.values()) / len(seeds)

    def _decide(self, arm: str, rung: int, cell: str) -> Decision:
        means = self._means[arm, self.bracket(arm, cell), rung]
        mine = means[cell]
        earlier = takewhile(lambda other: other != cell, means)
        better = sum(mean < mine for mean in means.values()) + sum(means[other] == mine for other in earlier)
        keep = max(1, len(means) // self._factor)
        return "continue" if math.isfinite(mine) and better < keep else "stop"


def _deal(factor: int, brackets: int) -> list[int]:
    """The brackets of a round of cells: hyperband's numbers of them, each bracket spread evenly over the round.

    Of s + 1 brackets, b starts with ceil((s + 1) / (s - b + 1) * factor^(s - b)) cells (arXiv 1603.06560, algorithm 1).
    """
    last = brackets - 1
    sizes = [math.ceil(brackets / (last - b + 1) * factor ** (last - b)) for b in range(brackets)]
    places = [((place + 0.5) / size, b) for b, size in enumerate(sizes) for place in range(size)]
    return [b for _, b in sorted(places)]


def _event(arm: str, cell: str, seed: int, rung: int, value: float, decision: Decision) -> Event:
    written = value if math.isfinite(value) else str(value)
    return {"arm": arm, "cell": cell, "seed": seed, "rung": rung, "value": written, "decision": decision}
