"""The plan: what each arm was given (configurations, brackets, seeds), and whether the arms were tuned alike."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterator

from analysis import names
from analysis.facts import Facts
from analysis.page import NONE, Html, element, join, table, value
from analysis.sections import DOT, short_axes
from analysis.store import Store
from analysis.tasks import deep


def plan(facts: Facts, store: Store) -> Html:
    every = dict.fromkeys(axis for arm in facts.arms for axis in arm.brackets)
    axes = [axis for axis in every if not _fixed(facts, axis)]
    rows = [
        [
            arm.arm,
            *(deep(axis, arm.brackets[axis]) if axis in arm.brackets else DOT for axis in axes),
            NONE if arm.planned is None else arm.planned,
            arm.configurations,
            arm.runs,
            _seeds_each(facts, arm.arm),
        ]
        for arm in facts.arms
    ]
    heads = ["arm", *short_axes(axes), "configurations", "recorded", "trials", "seeds each"]
    if not facts.arms:
        return element("p", "No arm was recorded.")
    count = len(facts.study.seeds)
    most = "up to " if facts.races else ""
    seeds = f"{most}{count} seed{'' if count == 1 else 's'} for each: {', '.join(map(str, facts.study.seeds))}. "
    text = store.study_file(facts.study)
    listing = element("details", element("summary", "The study file"), element("pre", text)) if text else None
    made = table(heads, rows, range(len(axes) + 1, len(axes) + 5))
    return join(element("p", seeds, _engine(text), *_scheduled(facts)), made, _fairness(facts), listing)


def _seeds_each(facts: Facts, arm: str) -> str:
    """How many seeds its configurations were run with."""
    counts = {len(cell.runs) for cell in facts.ranked if cell.arm == arm}
    return NONE if not counts else str(min(counts)) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"


def _scheduled(facts: Facts) -> Iterator[str]:
    """What the scheduler did, where configurations were not all treated as the plan's table says."""
    stopped = sum(run.state == names.STOPPED for run in facts.study.runs)
    if stopped:
        yield f" It stopped {stopped} trial{'' if stopped == 1 else 's'} early."
    if facts.races:
        won = sum(any(run.state == names.FINISHED for run in cell.runs) for cell in facts.ranked)
        yield (
            f" First seeds raced: the other seeds were for the {won} of {len(facts.ranked)} configurations whose first"
            " one got to the end."
        )
    if facts.changed:
        changes = sum(len(run.changes) for run in facts.study.runs)
        yield (
            f" In populations: {changes} times a trial took over the weights of a better one of its arm and seed, and"
            f" went on at another {', '.join(facts.changed)}."
        )


def _fixed(facts: Facts, axis: str) -> bool:
    """Whether all arms have one value of it, the same: what `--set` gives. The note below names it."""
    held = [arm.brackets.get(axis) for arm in facts.arms]
    return all(isinstance(one, list) and len(one) == 1 and one == held[0] for one in held) and len(held) > 1


def _engine(text: str | None) -> str:
    """The sampler and scheduler, as the study file names them."""
    if text is None:
        return "The study file was not recorded."
    try:
        held = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return f"The recorded study file cannot be read: {error}."
    sampler, scheduler = (held.get(name, {}).get("kind", usual) for name, usual in _ENGINE.items())
    equal = f" Arms are equal in {held['equal']}, within 2 %." if held.get("equal") else ""
    return f"Sampler: {sampler}; scheduler: {scheduler}.{equal}"


_ENGINE = {"sampler": "grid", "scheduler": "none"}


def _fairness(facts: Facts) -> Html | None:
    if len(facts.arms) < 2:
        return None
    lines = [*_equal_brackets(facts), *_edges(facts)]
    return element("div", *(element("p", line) for line in lines), class_="note")


def _equal_brackets(facts: Facts) -> list[str]:
    tried: defaultdict[str, set[str]] = defaultdict(set)
    for arm in facts.arms:
        for axis, bracket in arm.brackets.items():
            tried[axis].add(value(bracket))
    shared = [axis for axis in tried if len(tried[axis]) == 1 and all(axis in arm.brackets for arm in facts.arms)]
    unequal = [axis for axis in tried if len(tried[axis]) > 1]
    lines = [f"Every arm was given the same {', '.join(shared)}."] if shared else []
    lines += [f"The brackets of {', '.join(unequal)} differ between arms."] if unequal else []
    counts = [arm.planned or arm.configurations for arm in facts.arms]
    if len(set(counts)) > 1:
        fewest, most = min(counts), max(counts)
        lines.append(f"Arms have {fewest} to {most} configurations: more of them are more chances to win.")
    return lines or [f"Every arm has {counts[0]} configuration{'' if counts[0] == 1 else 's'}."]


def _edges(facts: Facts) -> list[str]:
    """Where the best value of an axis lies at the end of its bracket; arms with the same end in one line."""
    ends: defaultdict[str, list[str]] = defaultdict(list)
    for arm in facts.arms:
        for edge in arm.edges:
            end = f"the {edge.side} {edge.axis} tried, {value(edge.value)}"
            ends[f"{end}. A better one may lie beyond: next try {value(edge.next)}."].append(arm.arm)
    return [f"The best configuration of {', '.join(arms)} has {end}" for end, arms in ends.items()]
