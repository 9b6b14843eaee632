"""The plan: what each arm was given (configurations, brackets, seeds), and whether the arms were tuned alike."""

from __future__ import annotations

import tomllib
from collections import defaultdict

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
        ]
        for arm in facts.arms
    ]
    heads = ["arm", *short_axes(axes), "configurations", "recorded", "trials"]
    if not facts.arms:
        return element("p", "No arm was recorded.")
    count = len(facts.study.seeds)
    seeds = f"{count} seed{'' if count == 1 else 's'} for each: {', '.join(map(str, facts.study.seeds))}. "
    text = store.study_file(facts.study)
    listing = element("details", element("summary", "The study file"), element("pre", text)) if text else None
    made = table(heads, rows, range(len(axes) + 1, len(axes) + 4))
    return join(element("p", seeds, _engine(text)), made, _fairness(facts), listing)


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
    return f"Sampler: {sampler}; scheduler: {scheduler}."


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
