"""What a network was to do, and which network did it: what has to be equal where two configurations are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.page import value
from analysis.published_depths import LAYERS_PER_BLOCK

TASK_WORDS = ("kind", "layout", "difficulty")  # of an environment's spec


TOPOLOGICAL = ("granularity",)  # fields of a model that say what is connected


def setting(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The environment, where the spec has one, the model's fields, and the kind of optimizer."""
    env, model, optim = spec.get("env"), spec.get("model", {}), spec.get("optim", {})
    held = {key: value for key, value in model.items() if key not in TOPOLOGICAL}
    return ({"env": env} if env else {}) | held | ({"optimizer": optim["kind"]} if "kind" in optim else {})


def task(env: Mapping[str, Any]) -> str:
    """An environment in a few words: "ant-maze big"."""
    return " ".join(str(env[word]) for word in TASK_WORDS if word in env)


def task_names(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """What tells settings apart, in a few words; of a single one, its environment or nothing."""
    if len(settings) == 1 and settings[0].get("env"):
        return [task(settings[0]["env"])]
    keys = list(dict.fromkeys(key for one in settings for key in one))
    apart = [key for key in keys if len({value(one.get(key)) for one in settings}) > 1]
    return [", ".join(_said(key, one) for key in apart[:3]) for one in settings]


def _said(key: str, one: Mapping[str, Any]) -> str:
    if key == "env":
        return task(one["env"])
    return f"{key} {deep(key, one.get(key))}"


def deep(name: str, held: object) -> str:
    """An axis value, with the depth in layers behind a number of residual MLP blocks: "16 (depth 64)"."""
    if name.rpartition(".")[2] != "num_blocks":
        return value(held)
    if isinstance(held, list | tuple):
        return ", ".join(deep(name, one) for one in held)
    return f"{held} (depth {LAYERS_PER_BLOCK * held})" if isinstance(held, int) else value(held)
