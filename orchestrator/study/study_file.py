"""How a study file is found, read and overridden, before anyone asks what it means."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import search_spaces
from analysis.names import STUDY_FILE
from orchestrator.errors import InputError, did_you_mean
from orchestrator.study.complaints import shown, shown_key
from orchestrator.study.merge import Table, check, merged, nested, without

SHIPPED = Path(search_spaces.__file__).parent / "studies"
LARGEST = 2**20  # bytes
QUOTED = re.compile(r"""["']([\w.-]*)["']""")  # a key as TOML quotes it: axes."optim.lr"
TWICE = ("Cannot overwrite", "Cannot declare", "Duplicate")  # how tomllib's complaints about a second definition begin


def shipped() -> tuple[str, ...]:
    """The names of the studies that come with the package."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def find(path: str | Path, home: Path | None = None) -> Path:
    """The file that is meant: a shipped study by its bare name, a path, or a study that was started before in `home`.

    Raises:
        InputError: there is none.
    """
    if str(path) in shipped():
        return SHIPPED / f"{path}.toml"
    found = Path(path)
    bare = found.suffix != ".toml" and len(found.parts) == 1
    try:
        if found.is_file():
            return found
        if found.is_dir():
            fault = "is a folder; give the study's TOML file"
        elif home and bare and (started := home / "studies" / found / STUDY_FILE).is_file():
            return started
        else:
            fault = "no such file" + (did_you_mean(str(path), shipped()) if bare else "")
    except OSError as error:  # too long a name
        fault = f"is no path: {error.strerror}"
    raise InputError(f"{shown_key(str(path))}: {fault}")


def load(path: Path) -> Table:
    """What the file says. Raises InputError: it cannot be read, or is no TOML."""
    try:
        if (size := path.stat().st_size) > LARGEST:
            raise InputError(f"{path}: a study file has at most {LARGEST} bytes, got {size}")
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: should be TOML in UTF-8, got bytes that are not text") from error
    return parse(text, str(path))


def parse(text: str, source: str) -> Table:
    """A study file's text as tables. Raises InputError: it is empty or no TOML."""
    if not text.strip():
        raise InputError(f"{source}: is empty; a study has at least a name and a workload")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        what = "the same key twice" if any(word in str(error) for word in TWICE) else "no TOML"
        place = re.search(r"at line (\d+)", str(error))
        line = f", in {text.splitlines()[int(place[1]) - 1].strip()[:80]!r}" if place else ""
        raise InputError(f"{source}: {what}: {error}{line}") from error
    except RecursionError as error:
        raise InputError(f"{source}: no TOML that a study can have: too deeply nested") from error
    except ValueError as error:  # int() refuses so many digits
        raise InputError(f"{source}: no TOML that a study can have: a number of thousands of digits") from error


def override(raw: Table, text: str, study_fields: Iterable[str]) -> Table:
    """The tables of a study with one override, as "optim.lr=1e-3" or "sampler.cells=8".

    A path that begins with a field of the study is that field; any other is a path in a trial. What no arm and no axis
    touches is set in [trial]; else it becomes an axis of one value, which holds for every arm that has such a field.
    "arms=60m_*,cascaded" keeps those arms and drops the others.

    Raises:
        InputError: not of the form path=value.
    """
    path, equals, value = (part.strip() for part in text.partition("="))
    path = QUOTED.sub(r"\1", path)
    if not equals or not value or not path or not all(path.split(".")):
        raise InputError(f"override: should be path=value, as optim.lr=1e-3, got {shown(text)}")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value  # a word without quotes
    except (RecursionError, ValueError) as error:
        raise InputError(f"override: {path}: too deeply nested, or a number of thousands of digits") from error
    check({path: parsed})
    first, _, rest = path.partition(".")
    if first not in study_fields:
        return _override_trial(raw, path, parsed)
    if first == "axes" and rest:
        return _set_axis(raw, rest, parsed)
    if path == "arms" and isinstance(parsed, str):
        return {**raw, "arms": _chosen(_table(raw, "arms"), parsed)}
    return merged(raw, nested(path, parsed))


def _override_trial(raw: Table, path: str, value: Any) -> Table:
    section = path.partition(".")[0]
    arms = {name: arm for name, arm in _table(raw, "arms").items() if isinstance(arm, dict)}
    axes = [_table(table, "axes") for table in (raw, *arms.values())]
    if not any(key.partition(".")[0] == section for table in (*arms.values(), *axes) for key in table):
        return {**raw, "trial": merged(without(_table(raw, "trial"), path), nested(path, value))}
    for name, arm in arms.items():
        arms[name] = {**without(arm, path), "axes": without(_table(arm, "axes"), path)}
    return _set_axis({**raw, "arms": {**_table(raw, "arms"), **arms}}, path, [value])


def _chosen(arms: Table, patterns: str) -> Table:
    chosen: set[str] = set()
    for pattern in patterns.split(","):
        found = {name for name in arms if fnmatchcase(name, pattern.strip())}
        if not found:
            raise InputError(f"override: arms: no arm is called {pattern.strip()!r}{did_you_mean(pattern, arms)}")
        chosen |= found
    return {name: arm for name, arm in arms.items() if name in chosen}


def _set_axis(raw: Table, path: str, domain: Any) -> Table:
    return {**raw, "axes": {**without(_table(raw, "axes"), path), path: domain}}


def _table(raw: Table, key: str) -> Table:
    found = raw.get(key, {})
    return found if isinstance(found, dict) else {}
