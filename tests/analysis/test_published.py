"""The paper's numbers are whole, and rows find the configurations that they are read beside."""

import tomllib
from importlib.resources import files

import pytest

from analysis import published
from analysis.store import QueryError

HELD = tomllib.loads(files("analysis").joinpath("published.toml").read_text(encoding="utf-8"))
TABLES = [key for key in HELD if key.startswith("table")]


@pytest.mark.parametrize("key", TABLES)
def test_every_row_has_a_value_for_every_column_and_a_source(key: str) -> None:
    table = published.table(key)
    assert table.source.startswith("arXiv 2602.09009, Table ")
    assert all(len(row.values) == len(table.columns) for row in table.rows)


def test_tables_whose_values_are_not_known_are_absent() -> None:
    assert not {"table1", "table5", "table7"} & set(TABLES)
    with pytest.raises(QueryError, match="no published table 'table5'"):
        published.table("table5")


def test_numbers_as_printed() -> None:
    assert published.table("table4").rows[2].values == (24.48, 18.32)
    averages = [rows.values for rows in published.table("table2").rows]
    gains = [b - a for base, ours in ((0, 1), (2, 3)) for b, a in zip(averages[base], averages[ours], strict=True)]
    assert sum(gains) / 8 == pytest.approx(0.73, abs=0.01)  # the text's mean over the eight pairs
    assert set(published.claims()) == {"steps", "gain", "pearson", "strongest"}


def test_a_row_matches_specs_by_dotted_path() -> None:
    none, outgoing, _ = published.table("table4").rows
    spec = {"topology": {"kind": "ancre", "normalization": "outgoing"}}
    assert outgoing.matches(spec) and not none.matches(spec)
    assert not published.table("table9").rows[0].matches(spec)  # it names nothing of ours
    assert published.at(spec, "topology.kind.deeper") is None
