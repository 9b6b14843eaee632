"""The folder is the registry: a kind is a module in its family's folder, or a dotted path to one outside.

`topology.kind = "ancre-uniform"` is `models/topology/ancre_uniform.py`; `topology.kind = "my_package.my_module"` is a
stranger's. Either way the module defines one class `Spec`.
"""

import importlib
import pkgutil
from functools import cache, partial
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, SerializeAsAny

from models.optim.base import OptimSpec
from models.topology.base import TopologySpec
from orchestrator.data.base import DataSpec
from orchestrator.errors import InputError, did_you_mean

FAMILIES = {
    "workload": "orchestrator.workloads",
    "topology": "models.topology",
    "optim": "models.optim",
    "data": "orchestrator.data",
}


@cache
def names(family: str) -> tuple[str, ...]:
    """The kinds of a family, from the names of its files."""
    package = importlib.import_module(FAMILIES[family])
    modules = (module.name for module in pkgutil.iter_modules(package.__path__))
    return tuple(sorted(name.replace("_", "-") for name in modules if name != "base"))


@cache
def find(family: str, kind: str) -> type[BaseModel]:
    """The `Spec` of a kind.

    Raises:
        InputError: no such kind, or a dotted path that has no `Spec`.
    """
    if kind in names(family):
        path = f"{FAMILIES[family]}.{kind.replace('-', '_')}"
    elif "." in kind:
        path = kind
    else:
        raise InputError(f"no {family} of kind {kind!r}{did_you_mean(kind, names(family))}")
    try:
        spec = importlib.import_module(path).Spec
    except ModuleNotFoundError as error:
        raise InputError(f"{family} kind {kind!r}: no module named {error.name!r} can be imported") from error
    except AttributeError as error:
        raise InputError(f"{family} kind {kind!r}: module {path} defines no class `Spec`") from error
    if not (isinstance(spec, type) and issubclass(spec, BaseModel)):
        raise InputError(f"{family} kind {kind!r}: {path}.Spec is not a pydantic model")
    return spec


def parse(family: str, value: Any) -> Any:
    """A table with a `kind` as that kind's spec; a spec as itself. Raises ValueError as pydantic expects."""
    if isinstance(value, BaseModel):
        return value
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise ValueError(f"a {family} is a table with a kind{did_you_mean('', names(family))}")
    try:
        spec = find(family, value["kind"])
    except InputError as error:
        raise ValueError(str(error)) from error
    return spec.model_validate(value)


def summary(family: str, kind: str) -> str:
    """The first line of what a kind's spec says of itself."""
    return (find(family, kind).__doc__ or "").strip().split("\n")[0]


# Fields of a trial that take any kind of their family.
AnyTopology = Annotated[SerializeAsAny[TopologySpec], BeforeValidator(partial(parse, "topology"))]
AnyOptim = Annotated[SerializeAsAny[OptimSpec], BeforeValidator(partial(parse, "optim"))]
AnyData = Annotated[SerializeAsAny[DataSpec], BeforeValidator(partial(parse, "data"))]
