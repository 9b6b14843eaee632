"""A list of shortcuts: "0:2+2:3" adds h_0 to the output of step 2 and h_2 to that of step 3 (paper, section 3)."""

from typing import Literal

from pydantic import field_validator

from models.wiring import Pair, WiredSpec, Wiring


def parse(text: str) -> list[Pair]:
    """The connections of "i:j+i:j"; none for the empty text. Raises ValueError, in one line."""
    pairs: list[Pair] = []
    for part in text.split("+") if text.strip() else []:
        source, colon, target = part.strip().partition(":")
        if not (colon and source.isdecimal() and target.isdecimal()):
            raise ValueError(f"shortcut {part!r} in {text!r} is not of the form i:j, such as 0:2+2:3")
        pair = int(source), int(target)
        if pair[0] >= pair[1]:
            raise ValueError(f"shortcut {part!r} in {text!r} does not lead forward: i:j needs i < j")
        if pair in pairs:
            raise ValueError(f"shortcut {part!r} is listed twice in {text!r}")
        pairs.append(pair)
    return sorted(pairs, key=lambda pair: (pair[1], pair[0]))


class Spec(WiredSpec):
    """Each i:j has weight 1 beside F_j = r_j. The list is kept in order of steps: equal lists, equal specs."""

    kind: Literal["shortcuts"] = "shortcuts"
    shortcuts: str

    @field_validator("shortcuts")
    @classmethod
    def _ordered(cls, text: str) -> str:
        return "+".join(f"{i}:{j}" for i, j in parse(text))

    def check(self, depth: int) -> None:
        super().check(depth)
        for i, j in parse(self.shortcuts):
            if j > depth:
                raise ValueError(f"shortcut {i}:{j} ends beyond the last of {depth} blocks")

    def wiring(self, depth: int) -> Wiring:
        return Wiring(depth, dict.fromkeys(parse(self.shortcuts), 1.0), "constant")
