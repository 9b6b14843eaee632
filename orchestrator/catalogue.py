"""What a study file can name, and what each is in one line: `ancre kinds`."""

from collections.abc import Iterator, Mapping

from pydantic import BaseModel

from orchestrator import kinds
from orchestrator.errors import InputError, did_you_mean
from orchestrator.study.spec import Study
from orchestrator.study.study_file import shipped
from search_spaces.samplers import SAMPLERS
from search_spaces.schedulers import SCHEDULERS

FAMILIES = (*kinds.FAMILIES, "sampler", "scheduler", "study")


def catalogue(family: str | None) -> list[dict[str, str]]:
    """A row per kind of `family`, or of all of them: `family`, `kind`, `what`.

    Raises:
        InputError: no such family.
    """
    if family is not None and family not in FAMILIES:
        raise InputError(f"no family {family!r}{did_you_mean(family, FAMILIES)}")
    return [
        {"family": one, "kind": kind, "what": what}
        for one in ([family] if family else FAMILIES)
        for kind, what in _kinds(one)
    ]


def _kinds(family: str) -> Iterator[tuple[str, str]]:
    if family == "study":
        yield from ((name, Study.read(name).hypothesis) for name in shipped())
    elif family in ("sampler", "scheduler"):
        yield from _described(SAMPLERS if family == "sampler" else SCHEDULERS)
    else:
        yield from ((kind, kinds.summary(family, kind)) for kind in kinds.names(family))


def _described(known: Mapping[str, type[BaseModel]]) -> Iterator[tuple[str, str]]:
    return ((kind, (spec.__doc__ or "").strip().split("\n")[0]) for kind, spec in known.items())
