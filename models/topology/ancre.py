"""ANCRe: every step reads every earlier state, with learned weights that compete (paper, sections 4.1 and 4.2)."""

from typing import Literal

from pydantic import Field

from models.topology.base import InnerResidual
from models.wiring import Normalization, WiredSpec, Wiring, earlier, learned


class Spec(WiredSpec):
    """p_ij = softmax(c_ij / temperature) over i (ingoing, equation 7), over j (outgoing, 6), or c_ij itself (none)."""

    kind: Literal["ancre"] = "ancre"
    normalization: Normalization = "ingoing"
    temperature: float = Field(default=0.01, gt=0)
    inner_residual: InnerResidual = "drop"

    def num_coefficients(self, depth: int, width: int = 0) -> int:
        return depth * (depth + 1) // 2

    def wiring(self, depth: int) -> Wiring:
        return learned(depth, earlier(depth), self.normalization, self.temperature, self.inner_residual)
