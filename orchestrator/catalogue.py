"""What a study file can name, and what each is in one line: `ancre kinds`."""

import json
from collections.abc import Iterator, Mapping, Sequence

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from orchestrator import kinds
from orchestrator.errors import InputError, did_you_mean
from orchestrator.study.spec import Study
from orchestrator.study.study_file import shipped
from search_spaces.samplers import SAMPLERS
from search_spaces.schedulers import SCHEDULERS

SET_ELSEWHERE = ("kind", "workload", "seed")
TABLES: Mapping[str, Mapping[str, type[BaseModel]]] = {"sampler": SAMPLERS, "scheduler": SCHEDULERS}
FAMILIES = (*kinds.FAMILIES, *TABLES, "study")


def catalogue(family: str | None) -> list[dict[str, str]]:
    """A row per kind of `family`, or of all of them: `family`, `kind`, `what`; of one family, `fields` too.

    Raises:
        InputError: no such family.
    """
    if family is not None and family not in FAMILIES:
        raise InputError(f"no family {family!r}{did_you_mean(family, FAMILIES)}")
    return [
        {"family": one, "kind": kind, "what": what} | ({"fields": _fields(one, kind)} if family else {})
        for one in ([family] if family else FAMILIES)
        for kind, what in _kinds(one)
    ]


def shown(rows: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """The same for a table of two or three columns."""
    return [
        {key: value for key, value in row.items() if key != "fields"}
        | ({"what": f"{row['what']}\n{row['fields']}"} if row.get("fields") else {})
        for row in rows
    ]


def _fields(family: str, kind: str) -> str:
    """What a table of this kind can hold besides its kind, with defaults; nothing of a study."""
    if family == "study":
        return ""
    return _listed(TABLES[family][kind] if family in TABLES else kinds.find(family, kind))


def _listed(spec: type[BaseModel]) -> str:
    """The fields of a spec with their defaults, those of tables inside it too."""
    return ", ".join(_field(name, field) for name, field in spec.model_fields.items() if name not in SET_ELSEWHERE)


def _field(name: str, field: FieldInfo) -> str:
    inside = field.annotation
    if isinstance(inside, type) and issubclass(inside, BaseModel) and "kind" not in inside.model_fields:
        return f"{name} = {{ {_listed(inside)} }}"
    if field.is_required():
        return name
    value = field.get_default(call_default_factory=True)
    table = value.model_dump() if isinstance(value, BaseModel) else {}
    return f"{name} = {table.get('kind') or json.dumps(value, default=str)}"


def _kinds(family: str) -> Iterator[tuple[str, str]]:
    if family == "study":
        yield from ((name, Study.read(name).hypothesis) for name in shipped())
    elif family in TABLES:
        yield from _described(TABLES[family])
    else:
        yield from ((kind, kinds.summary(family, kind)) for kind in kinds.names(family))


def _described(known: Mapping[str, type[BaseModel]]) -> Iterator[tuple[str, str]]:
    return ((kind, (spec.__doc__ or "").strip().split("\n")[0]) for kind, spec in known.items())
