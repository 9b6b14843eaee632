"""The base of every spec in this package: frozen data that says what to build, checked when it is read.

Specs import no torch, so that ten thousand of them can be read, checked, counted and hashed before anything is built.
"""

from pydantic import BaseModel, ConfigDict


class Spec(BaseModel):
    """Frozen, hashable, no unknown keys, no NaN or infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())
