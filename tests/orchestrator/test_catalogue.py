"""`ancre kinds`: what a study can name, and what the tables take."""

from orchestrator.catalogue import FAMILIES, catalogue
from orchestrator.study.study_file import shipped


def test_every_family_has_its_kinds_and_each_says_what_it_is() -> None:
    rows = catalogue(None)
    assert {row["family"] for row in rows} == set(FAMILIES)
    assert all(row["what"] and "\n" not in row["what"] for row in rows)
    assert {row["kind"] for row in rows if row["family"] == "study"} == set(shipped())


def test_a_family_alone_lists_fields_with_defaults_and_what_must_be_given() -> None:
    fields = {row["kind"]: row["fields"] for row in catalogue("env")}
    assert fields["point"] == 'episode_length = 100, goal_resample = "never", starts = 16, layout = "u"'
    (llm,) = (row["fields"] for row in catalogue("workload") if row["kind"] == "llm")
    assert llm.startswith("model = { width, ffn_width, depth, heads, vocab_size = 32000")
    assert "train = { steps, batch, " in llm and "seed" not in llm
