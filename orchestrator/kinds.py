"""The folder is the registry: a kind is a module in its family's folder, or a dotted path to one outside.

`topology.kind = "ancre-uniform"` is `models/topology/ancre_uniform.py`; `topology.kind = "my_package.my_module"` is a
stranger's. Either way the module defines one class `Spec`.
"""

import importlib
import pkgutil
import sys
from functools import cache, partial
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, SerializeAsAny

from envs.base import GoalEnvSpec
from models.optim.base import OptimSpec
from models.topology.base import TopologySpec
from orchestrator.data.base import DataSpec
from orchestrator.errors import InputError, did_you_mean, one_line
from orchestrator.features.base import FeatureSpec
from orchestrator.images.base import ImageSpec
from orchestrator.workloads.base import TrialSpec


class Family(NamedTuple):
    """Where the kinds of a family lie, and what each `Spec` must be."""

    package: str
    base: type[BaseModel]
    shared: tuple[str, ...] = ("base",)  # modules of the package that are no kinds; its sub-packages are none either


FAMILIES = {
    "workload": Family("orchestrator.workloads", TrialSpec),
    "topology": Family("models.topology", TopologySpec),
    "optim": Family("models.optim", OptimSpec, ("base", "layerwise", "paired", "parts", "projected", "rounding")),
    "data": Family("orchestrator.data", DataSpec),
    "images": Family("orchestrator.images", ImageSpec),
    "features": Family("orchestrator.features", FeatureSpec),
    "env": Family("envs", GoalEnvSpec, ("base", "functional", "host", "maze", "vector")),
}


@cache
def names(family: str) -> tuple[str, ...]:
    """The kinds of a family, from the names of its files."""
    package, _, shared = FAMILIES[family]
    modules = pkgutil.iter_modules(importlib.import_module(package).__path__)
    own = (module.name for module in modules if not module.ispkg and module.name not in shared)
    return tuple(sorted(name.replace("_", "-") for name in own))


@cache
def find(family: str, kind: str) -> type[BaseModel]:
    """The `Spec` of a kind.

    Raises:
        InputError: no such kind, or a dotted path that leads to no `Spec` of this family.
    """
    package, base, _ = FAMILIES[family]
    if kind in names(family):
        own: type[BaseModel] = _spec(f"{package}.{kind.replace('-', '_')}")
        return own
    if "." not in kind or not all(part.isidentifier() for part in kind.split(".")):
        raise InputError(f"no {family} of kind {kind!r}{did_you_mean(kind, names(family))}")
    try:
        spec = _spec(kind)
    except BaseException as error:  # whatever a stranger's module raises while it is imported, SystemExit too
        raise InputError(f"{family} kind {kind!r} cannot be imported: {one_line(error)}") from error
    if not (isinstance(spec, type) and issubclass(spec, base)):
        raise InputError(f"{family} kind {kind!r}: the module defines no class `Spec` derived from {base.__name__}")
    missing = {*spec.__abstractmethods__, *(name for name in base.__class_vars__ if not hasattr(spec, name))}
    if missing:
        raise InputError(f"{family} kind {kind!r}: its Spec lacks {', '.join(sorted(missing))}")
    return spec


def _spec(module: str) -> Any:
    return getattr(importlib.import_module(module), "Spec", None)


def parse(family: str, value: Any) -> Any:
    """A table with a `kind` as that kind's spec; a spec as itself. Raises ValueError as pydantic expects."""
    if isinstance(value, BaseModel):
        return value
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise ValueError(f"give a table with a kind{did_you_mean('', names(family))}")
    try:
        spec = find(family, value["kind"])
    except InputError as error:
        raise ValueError(str(error)) from error
    return spec.model_validate(value)


def summary(family: str, kind: str) -> str:
    """The first line of what a kind's file says of itself."""
    text = sys.modules[find(family, kind).__module__].__doc__ or ""
    return text.strip().split("\n")[0]


# Fields of a trial that take any kind of their family.
AnyTopology = Annotated[SerializeAsAny[TopologySpec], BeforeValidator(partial(parse, "topology"))]
AnyOptim = Annotated[SerializeAsAny[OptimSpec], BeforeValidator(partial(parse, "optim"))]
AnyData = Annotated[SerializeAsAny[DataSpec], BeforeValidator(partial(parse, "data"))]
AnyImages = Annotated[SerializeAsAny[ImageSpec], BeforeValidator(partial(parse, "images"))]
AnyFeatures = Annotated[SerializeAsAny[FeatureSpec], BeforeValidator(partial(parse, "features"))]
AnyEnv = Annotated[SerializeAsAny[GoalEnvSpec], BeforeValidator(partial(parse, "env"))]
