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
    assert all(len(row.values) in (0, len(table.columns)) for row in table.rows)


def test_what_the_paper_prints_as_a_picture_has_no_numbers() -> None:
    assert {key for key in TABLES if not published.table(key).printed} == {"table1", "table5", "table7"}
    without = {row.label for row in published.table("table2").rows if not row.values}
    assert without == {"FullPT + HC", "FullPT + mHC", "GaLore + HC", "GaLore + mHC"}
    with pytest.raises(QueryError, match="no published table 'table8'"):
        published.table("table8")


def test_numbers_as_printed() -> None:
    assert published.table("table4").rows[2].values == (24.48, 18.32)
    averages = [row.values for row in published.table("table2").rows if row.values]
    gains = [b - a for base, ours in ((0, 1), (2, 3)) for b, a in zip(averages[base], averages[ours], strict=True)]
    assert sum(gains) / 8 == pytest.approx(0.73, abs=0.01)  # the text's mean over the eight pairs
    assert set(published.claims()) == {"steps", "gain", "pearson", "strongest"}


def test_a_row_matches_specs_by_dotted_path() -> None:
    none, outgoing, _ = published.table("table4").rows
    spec = {"topology": {"kind": "ancre", "normalization": "outgoing"}}
    assert outgoing.matches(spec) and not none.matches(spec)
    assert not published.table("table9").rows[0].matches(spec)  # it names nothing of ours
    assert published.at(spec, "topology.kind.deeper") is None


def test_a_spec_that_leaves_out_a_default_matches_it() -> None:
    _, blocks, ffn, _ = published.table("table1").rows
    spec = {"topology": {"kind": "ancre"}, "model": {"width": 512}}
    assert blocks.matches(spec) and not ffn.matches(spec)
    other = {**spec, "model": {"width": 512, "granularity": "ffn"}}
    assert ffn.matches(other) and not blocks.matches(other)


def test_columns_of_a_size_may_show_several_metrics() -> None:
    columns = published.table("table6").columns
    assert [column.size for column in columns] == ["350M"] * 4 + ["1B"] * 4
    assert {column.head: column.metric for column in columns}["memory (GB)"] == "memory/peak"
    cascaded, hc, *_ = published.table("table6").rows
    for tokens, slowdown in ((2, 3), (6, 7)):  # the slowdown is that of the printed throughputs
        base, own = (float(str(row.values[tokens]).rstrip("k")) for row in (cascaded, hc))
        assert hc.values[slowdown] == pytest.approx(base / own, abs=0.005)
