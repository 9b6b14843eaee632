"""Which configurations of an arm are tried, and in which order: grid, random, or optuna's TPE, behind one ask and tell.

A sampler serves one arm. It is a function of its spec and of what it was told, so after an interruption it is rebuilt
by `replay`; nothing is pickled. An arm is a list of spaces, since some axes exist only beside some values of another
(a temperature only where the topology has one): each space holds the axes that go together. Every arm is asked for the
same number of configurations, and arms draw the same values of the axes that they share: none is tuned better.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random as Generator
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from search_spaces.domains import Choices, Domain, Range, same

if TYPE_CHECKING:
    import optuna

Assignment: TypeAlias = dict[str, Any]  # axis -> value
Space: TypeAlias = Mapping[str, Domain]  # axis -> domain, in the order of the file
Mode: TypeAlias = Literal["min", "max"]

MOST_CELLS = 100_000
DRAWS_PER_CELL = 30  # before what is left of a finite space is tried in order; 12 draw all of 100,000, on average
TPE_REDRAWS = 20  # TPE comes back to where it was good; after these, draw at random what was not tried


class Sampler(Protocol):
    """Asks for one configuration of an arm at a time."""

    def ask(self) -> Assignment | None:
        """The next configuration to try; None: no more."""

    def tell(self, assignment: Assignment, value: float) -> None:
        """A configuration ended with `value` (the mean over its seeds); a non-finite one is the worst there is."""

    def replay(self, history: Iterable[tuple[Assignment, float | None]]) -> None:
        """Be as after these were asked, in this order, and told their values; None: asked, not ended yet."""


class _Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class GridSpec(_Spec):
    """Every combination, the last axis fastest."""

    kind: Literal["grid"] = "grid"

    def build(self, spaces: Sequence[Space], mode: Mode = "min") -> Sampler:
        """The sampler of an arm. Raises ValueError where an axis is a range."""
        for axis, domain in ((axis, domain) for space in spaces for axis, domain in space.items()):
            if isinstance(domain, Range):
                raise ValueError(f"a grid takes a list of values for {axis}, got a range")
        return _Listed(everything(spaces))


class RandomSpec(_Spec):
    """`cells` different configurations, each axis uniform over its domain."""

    kind: Literal["random"] = "random"
    cells: int = Field(gt=0, le=MOST_CELLS)  # of every arm
    seed: int = Field(default=0, ge=0)

    def build(self, spaces: Sequence[Space], mode: Mode = "min") -> Sampler:
        return _Listed(_draws(spaces, self.seed, self.cells), self.cells)


class OptunaSpec(_Spec):
    """TPE: `startup` random configurations, then where the ones that ended say it is good.

    The more configurations run at once, the less is known when the next is asked for.
    """

    kind: Literal["optuna"] = "optuna"
    cells: int = Field(gt=0, le=10_000)  # of every arm
    seed: int = Field(default=0, ge=0)
    startup: int = Field(default=10, gt=0)

    def build(self, spaces: Sequence[Space], mode: Mode = "min") -> Sampler:
        return _Tpe(self, spaces, mode)


AnySampler: TypeAlias = GridSpec | RandomSpec | OptunaSpec
SAMPLERS: Mapping[str, type[AnySampler]] = {"grid": GridSpec, "random": RandomSpec, "optuna": OptunaSpec}


def size(spaces: Sequence[Space]) -> int | None:
    """How many configurations there are; None: a continuum."""
    sizes = [[domain.size for domain in space.values()] for space in spaces]
    if any(count is None for counts in sizes for count in counts):
        return None
    return sum(math.prod(count or 0 for count in counts) for counts in sizes)


def everything(spaces: Sequence[Space]) -> Iterator[Assignment]:
    """Every configuration, the last axis fastest."""
    for space in spaces:
        for combination in itertools.product(*(domain.members() for domain in space.values())):
            yield dict(zip(space, combination, strict=True))


def _draws(spaces: Sequence[Space], seed: int, cells: int) -> Iterator[Assignment]:
    """Random assignments, and in the end what they missed of a finite space.

    Each axis has its own stream, keyed by its name: two arms see the same k-th value of an axis that both have.
    """
    axes = _union(spaces)
    streams = {axis: Generator(f"{seed}/{axis}") for axis in axes}
    for _ in range(DRAWS_PER_CELL * cells):
        yield _fitting(spaces, {axis: draw(domain, streams[axis]) for axis, domain in axes.items()})
    if size(spaces) is not None:
        yield from everything(spaces)


def _union(spaces: Sequence[Space]) -> dict[str, Domain]:
    """Every axis of the spaces, with all of its values."""
    union: dict[str, Domain] = {}
    for axis, domain in ((axis, domain) for space in spaces for axis, domain in space.items()):
        known = union.setdefault(axis, domain)
        if isinstance(domain, Choices) and isinstance(known, Choices):
            union[axis] = Choices(tuple({same(value): value for value in (*known.values, *domain.values)}.values()))
    return union


def _fitting(spaces: Sequence[Space], drawn: Assignment) -> Assignment:
    """The part of an assignment to every axis that the first space to admit it has axes for."""
    if len(spaces) == 1:
        return drawn
    for space in spaces:
        choices = ((drawn[axis], domain) for axis, domain in space.items() if isinstance(domain, Choices))
        if all(value in domain.values for value, domain in choices):
            return {axis: drawn[axis] for axis in space}
    raise ValueError(f"no space holds {drawn}")


def draw(domain: Domain, stream: Generator) -> Any:
    """A value of a domain, uniform over it."""
    if isinstance(domain, Choices):
        return domain.values[stream.randrange(domain.size)]
    if domain.log:
        value = math.exp(stream.uniform(math.log(domain.low), math.log(domain.high)))
        value = min(max(value, domain.low), domain.high)  # exp(log(x)) may miss x by a rounding
        return round(value) if domain.integer else value
    if (count := domain.size) is not None:
        return domain.low + stream.randrange(count) * (domain.step or 1)
    return stream.uniform(domain.low, domain.high)


class _Listed:
    """A sampler whose order does not depend on what it is told."""

    def __init__(self, draws: Iterator[Assignment], cells: int | None = None) -> None:
        self._draws, self._cells = draws, cells
        self._asked: set[str] = set()

    def ask(self) -> Assignment | None:
        if len(self._asked) == self._cells:
            return None
        for assignment in self._draws:
            if (key := same(assignment)) not in self._asked:
                self._asked.add(key)
                return assignment
        return None

    def tell(self, assignment: Assignment, value: float) -> None:
        pass

    def replay(self, history: Iterable[tuple[Assignment, float | None]]) -> None:
        self._asked.update(same(assignment) for assignment, _ in history)


class _Tpe:
    """TPE whose every question depends on (seed, history) alone: its generator is seeded afresh for each.

    Optuna sees choices by their position, since a choice may be a table. A question that repeats a configuration is
    withdrawn, so that cells stay different; what was asked enters optuna's study as a trial that is told later.
    """

    def __init__(self, spec: OptunaSpec, spaces: Sequence[Space], mode: Mode) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._spec, self._spaces, self._axes = spec, spaces, _union(spaces)
        self._worst = math.inf if mode == "min" else -math.inf
        self._distributions = {axis: _distribution(domain) for axis, domain in self._axes.items()}
        self._study = optuna.create_study(direction="minimize" if mode == "min" else "maximize")
        self._numbers: dict[str, int] = {}  # what was asked -> number of its trial
        self._random = _Listed(_draws(spaces, spec.seed, spec.cells))

    def ask(self) -> Assignment | None:
        asked = len(self._numbers)
        if asked == self._spec.cells:
            return None
        found = self._tpe(asked) if asked >= self._spec.startup else None
        if found is None:
            found = self._random.ask()
        if found is not None:
            self._record(found)
        return found

    def tell(self, assignment: Assignment, value: float) -> None:
        self._study.tell(self._numbers[same(assignment)], value if math.isfinite(value) else self._worst)

    def replay(self, history: Iterable[tuple[Assignment, float | None]]) -> None:
        for assignment, value in history:
            self._record(assignment)
            if value is not None:
                self.tell(assignment, value)

    def _tpe(self, asked: int) -> Assignment | None:
        """What TPE proposes, unless it proposes only what was asked before."""
        import optuna

        for redraw in range(TPE_REDRAWS):
            seed = Generator(f"{self._spec.seed}/{asked}/{redraw}").randrange(2**32)
            self._study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=1)
            trial = self._study.ask(self._distributions)
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
            drawn = {axis: _value(domain, trial.params[axis]) for axis, domain in self._axes.items()}
            if same(found := _fitting(self._spaces, drawn)) not in self._numbers:
                return found
        return None

    def _record(self, assignment: Assignment) -> None:
        import optuna

        trial = optuna.trial.create_trial(
            state=optuna.trial.TrialState.RUNNING,
            params={axis: _position(self._axes[axis], value) for axis, value in assignment.items()},
            distributions={axis: self._distributions[axis] for axis in assignment},
        )
        self._numbers[same(assignment)] = len(self._study.get_trials(deepcopy=False))
        self._study.add_trial(trial)
        self._random.replay([(assignment, None)])


def _distribution(domain: Domain) -> optuna.distributions.BaseDistribution:
    import optuna

    if isinstance(domain, Choices):
        return optuna.distributions.CategoricalDistribution(range(domain.size))
    if domain.integer:
        return optuna.distributions.IntDistribution(
            int(domain.low), int(domain.high), domain.log, int(domain.step or 1)
        )
    high = domain.high if domain.step is None else domain.low + ((domain.size or 1) - 1) * domain.step
    return optuna.distributions.FloatDistribution(domain.low, high, domain.log, domain.step)


def _value(domain: Domain, param: Any) -> Any:
    return domain.values[param] if isinstance(domain, Choices) else param


def _position(domain: Domain, value: Any) -> Any:
    return [same(choice) for choice in domain.values].index(same(value)) if isinstance(domain, Choices) else value
