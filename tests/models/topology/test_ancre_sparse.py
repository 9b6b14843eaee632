"""Which tables describe a sparse mask, and what it costs. What masks compute: tests/models/test_closed_forms.py."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.topology.ancre import Spec as Dense
from models.topology.ancre_sparse import Spec


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"boundaries": (0, 2)}, r"boundaries \[0, 2\] do not ascend from 1"),
        ({"boundaries": (3, 2)}, r"boundaries \[3, 2\] do not ascend from 1"),
        ({"boundaries": (2, 2)}, r"boundaries \[2, 2\] do not ascend from 1"),
        ({"boundaries": (2,), "segment": 3}, "does not read segment beside boundaries"),
        ({"mask": "first-and-window", "segment": 2}, "does not read segment"),
        ({"mask": "first-and-window", "boundaries": (2,)}, "does not read boundaries"),
        ({"mask": "boundary-sources", "window": 3}, "does not read window"),
        ({"mask": "boundary-targets", "first": 3}, "does not read first"),
        ({"mask": "listed", "sources": "0:1", "first": 3}, "does not read first here"),
        ({"sources": "0:1"}, "mask 'boundary-sources' does not read sources here"),
        ({"mask": "listed", "sources": "1:1"}, "does not lead forward"),
        ({"segment": 0}, "segment"),
        ({"window": 0, "mask": "first-and-window"}, "window"),
        ({"temperature": 0}, "temperature"),
    ],
)
def test_tables_that_contradict_themselves_are_refused(table: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Spec(**table)


def test_boundaries_lie_within_the_stack() -> None:
    spec = Spec(boundaries=(2, 6))
    spec.check(6)
    with pytest.raises(ValueError, match="boundary 6 lies beyond the last of 5 blocks"):
        spec.check(5)


def test_every_step_has_a_source() -> None:
    spec = Spec(mask="listed", sources="0:1+0:3+1:3")
    with pytest.raises(ValueError, match=r"sources leave step 2 of 3 without a source; add one, such as 1:2$"):
        spec.check(3)
    with pytest.raises(ValueError, match="sources: 0:3 ends beyond the last of 2 blocks"):
        spec.check(2)
    Spec(mask="listed", sources="0:1+0:2").check(2)


def test_a_list_of_all_connections_is_dense() -> None:
    every = "+".join(f"{i}:{j}" for j in range(1, 5) for i in range(j))
    assert Spec(mask="listed", sources=every).wiring(4) == Dense().wiring(4)


@pytest.mark.parametrize(
    ("table", "edges"),
    [
        ({"segment": 4}, [0, 4, 8, 10]),
        ({"segment": 5}, [0, 5, 10]),
        ({"segment": 99}, [0, 10]),
        ({"boundaries": (1, 7)}, [0, 1, 7, 10]),
        ({"boundaries": (1, 10)}, [0, 1, 10]),
        ({"boundaries": ()}, [0, 10]),
    ],
)
def test_boundaries_are_given_or_every_so_many_blocks(table: dict[str, Any], edges: list[int]) -> None:
    assert Spec(**table).edges(10) == edges


@given(st.integers(1, 30), st.integers(1, 8))
def test_counts_are_those_of_the_definitions(depth: int, size: int) -> None:
    """By boundary-sources, step j reads the ceil(j / m) boundaries before it, and j - 1 where that is none of them."""
    boundaries = [-(-j // size) for j in range(1, depth + 1)]
    inside = sum((j - 1) % size != 0 for j in range(1, depth + 1))
    assert Spec(segment=size).num_coefficients(depth) == sum(boundaries) + inside
    segments = -(-depth // size)
    targets = Spec(mask="boundary-targets", segment=size)
    assert targets.num_coefficients(depth) == segments * (segments + 1) // 2
    window = Spec(mask="first-and-window", first=2, window=size)
    assert window.num_coefficients(depth) == sum(min(j, 2 + size) for j in range(1, depth + 1))


@pytest.mark.parametrize("depth", [1, 2, 5, 9])
@pytest.mark.parametrize(
    "fields",
    [
        *(
            {"mask": mask, "segment": size}
            for mask in ("boundary-sources", "boundary-targets")
            for size in (1, 2, 4, 9)
        ),
        {"boundaries": (1,)},
        {"mask": "boundary-targets", "boundaries": (1,)},
        *({"mask": "first-and-window", "first": first, "window": size} for first in (0, 2, 12) for size in (1, 3, 12)),
    ],
)
def test_coefficients_are_counted_as_they_are_listed(fields: dict[str, Any], depth: int) -> None:
    spec = Spec(**fields)
    assert spec.num_coefficients(depth) == spec.wiring(depth).num_coefficients
