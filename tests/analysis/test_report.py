"""The report: it opens offline, escapes what users wrote, says what is missing, and shows what was recorded."""

from __future__ import annotations

import re
import shlex
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from analysis import queries
from analysis.facts import gather
from analysis.page import number
from analysis.report import report
from analysis.store import QueryError, Run, open_store
from orchestrator.cli import build_parser

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """Text, elements and ids of a page; fails on tags that do not close."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.codes: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "code":
            self.codes.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)
        if self.open and self.open[-1] == "code":
            self.codes[-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def written(store: Any, folder: Path, *studies: str) -> tuple[str, Page]:
    out = report(studies, folder / "deep" / "report.html", store.uri).path
    html = out.read_text(encoding="utf-8")
    return html, Page(html)


EVERY = [
    "small",
    "mixed",
    "linear",
    "deep",
    "many",
    "measured",
    "drawn",
    "one-seed",
    "all-diverged",
    "all-nan",
    "just-started",
    "no-parent",
    "hostile",
]


@pytest.fixture(scope="module")
def every(store: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Page]:
    return written(store, tmp_path_factory.mktemp("every"), *EVERY)


def test_it_opens_offline(every: tuple[str, Page]) -> None:
    html, page = every
    assert "http:" not in html and "https:" not in html and "//" not in re.sub(r"base64,[^\"]*|sqlite:///\S*", "", html)
    assert not [tag for tag, _ in page.elements if tag in ("script", "link", "iframe", "object")]
    for _, attributes in page.elements:
        for name in ("src", "href", "xlink:href"):
            target = attributes.get(name) or "#"
            assert target.startswith(("#", "data:image/png;base64,"))
        assert not [name for name in attributes if name.startswith("on")]
    assert "@import" not in html and "@font-face" not in html


def test_ids_are_unique_over_all_figures_and_links_lead_somewhere(every: tuple[str, Page]) -> None:
    ids = [attributes["id"] for _, attributes in every[1].elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {
        (a.get("href") or a.get("xlink:href") or "").removeprefix("#") for tag, a in every[1].elements if tag in "a use"
    }
    assert links <= set(ids)


def test_what_users_wrote_is_escaped(every: tuple[str, Page], make: Any) -> None:
    html, page = every
    assert "<script>" not in html
    assert make.hostile in page.text


def test_each_figure_has_the_command_that_gives_its_numbers(every: tuple[str, Page]) -> None:
    _, page = every
    figures = sum(tag == "figure" for tag, _ in page.elements)
    queries_made = [shlex.split(code) for code in page.codes if code.startswith("ancre query")]
    assert figures >= 20
    drawings = sum(code.startswith("ancre sample") for code in page.codes)
    assert drawings == 2 and len(queries_made) >= figures - drawings
    for _, *words in [shlex.split(code) for code in page.codes if code.startswith("ancre ")]:
        build_parser().parse_args(words)  # exits where the command line has no such command
    for _, _, question, study, *options in queries_made:
        assert question in ("best", "cells", "runs", "curves", "topology", "depths")
        assert study in EVERY
        assert options[-2:] in (["--format", "csv"], ["--format", "json"])
    assert "ancre report small mixed" in " ".join(page.codes)


def test_drawn_images_are_shown_beside_how_good_they_are(store: Any, tmp_path: Path, make: Any) -> None:
    """The picture of each arm's first seed, last values over seeds, and Table 3 beside them."""
    _, page = written(store, tmp_path, "drawn")
    said = page.text
    pictures = [attributes for tag, attributes in page.elements if tag == "img"]
    assert [b64decode((one["src"] or "").partition(",")[2]) for one in pictures] == [make.pixel] * 2
    assert "cascaded, seed 0: images of the last evaluation, a row a class, drawn with guidance." in said
    assert "guided/fid 35.50 ± 0.71 30.50 ± 0.71" in said
    assert "DiT-S/2 69.4 70.50 ± 0.71 (n = 2) cascaded" in said
    assert "DiT-S/2 + ANCRe, cfg = 1.5 42.99 30.50" in said  # with guidance, from guided/fid
    assert "37.9 40.00" in said and "48.53 50.00" in said  # precision, in percent
    assert "DiT-B/2 44.31 not run" in said
    assert [code.split()[2] for code in page.codes if code.startswith("ancre sample")] == [
        run.id for run in store_runs(store) if run.seed == 0
    ]


def store_runs(store: Any) -> list[Run]:
    return list(open_store(store.uri).study("drawn").runs)


def test_results_of_the_small_study(store: Any, tmp_path: Path) -> None:
    _, page = written(store, tmp_path, "small")
    said = page.text
    assert "Learned connections beat cascaded ones in small." in said
    assert "drop ends 3.00 below cascaded in val/perplexity" in said
    assert "12 of 12 trials finished" in said
    assert "12.00" in said and "[9.516, 14.48]" in said
    assert "Every arm was given the same optim.lr." in said
    assert "next try 0.003, 0.009, 0.027" in said
    topology = queries.topology("small", tracking_uri=store.uri)[0].agreement
    assert number(topology.pearson, 3) in said and number(topology.pearson_chance, 3) in said
    assert "24.48" in said and "12.00 ± 1.0 (n = 3)" in said  # Table 4 beside ours
    assert "34.3 % on average" in said and "arXiv 2602.09009" in said
    assert "13 MLflow runs read" in said


def test_steps_saved_are_those_of_the_curves(store: Any, tmp_path: Path) -> None:
    """Curves fall linearly from 3 v to v: drop (v = 12) is at 15 in step 100 (36 - 15) / 24 = 87.5."""
    _, page = written(store, tmp_path, "small")
    assert re.search(
        "drop cascaded: 15.00 at 100 step 8[78] 1[23] % 18 %, 1[23] %, 8 %", page.text
    )  # seeds: v = 11, 12, 13


def test_models_are_compared_each_with_its_own_baseline(store: Any, tmp_path: Path, make: Any) -> None:
    """Two sizes of Table 10, the second with a larger gain."""
    sizes = {"60M": {"width": 512, "depth": 8}, "350M": {"width": 1024, "depth": 24}}
    level = {"60M": (30.0, 29.0), "350M": (20.0, 18.0)}
    trials = [
        make.Trial(f"{size}_{kind}", seed, value + seed, topology={"kind": kind}, extra={"model": sizes[size]})
        for size, values in level.items()
        for kind, value in zip(("cascaded", "ancre"), values, strict=True)
        for seed in range(3)
    ]
    store.study("sizes", trials, tags={"ancre.published": "table10"})
    _, page = written(store, tmp_path, "sizes")
    assert "60M_ancre ends 1.00 below 60M_cascaded in val/perplexity, width 512, depth 8" in page.text
    assert "350M_ancre ends 2.00 below 350M_cascaded in val/perplexity, width 1024, depth 24" in page.text
    assert "350M_ancre ends 11.0" not in page.text and "against 60M_cascaded, width 1024" not in page.text
    assert "mean of 2 models" in page.text
    heads = "paper, 60M ours, 60M paper, 130M paper, 350M ours, 350M"
    ours = ["31.00 ± 1.0 (n = 3) 60M_cascaded", "21.00 ± 1.0 (n = 3) 350M_cascaded"]
    assert f"{heads} FullPT 30.69 ± 0.37 {ours[0]} 25.04 ± 0.03 19.32 ± 0.40 {ours[1]}" in page.text


def test_optimizers_and_what_is_connected_are_no_models_of_their_own(store: Any, tmp_path: Path, make: Any) -> None:
    """GaLore's networks are compared with GaLore's, and connections between modules with those between blocks."""
    level = {"adamw": (30.0, 29.0), "galore": (34.0, 31.0)}
    trials = [
        make.Trial(
            f"{optim}_{kind}",
            0,
            value,
            topology={"kind": kind},
            extra={"optim": {"kind": optim, "lr": 1e-3}, "model": {"width": 64, "depth": 4} | more},
        )
        for optim, values in level.items()
        for kind, value, more in zip(("cascaded", "ancre"), values, ({}, {"granularity": "both"}), strict=True)
    ]
    store.study("optimizers", trials, seeds=[0])
    _, page = written(store, tmp_path, "optimizers")
    assert "adamw_ancre ends 1.00 below adamw_cascaded in val/perplexity, optimizer adamw" in page.text
    assert "galore_ancre ends 3.00 below galore_cascaded in val/perplexity, optimizer galore" in page.text


def test_memory_and_speed_stand_beside_the_estimate(store: Any, tmp_path: Path) -> None:
    _, page = written(store, tmp_path, "measured")
    heads = "arm parameters gradients optimizer state activations peak tokens/s MFU"
    parts = "1 GB estimate 1.25 GB 1 GB estimate 1.25 GB 2 GB estimate 2.5 GB 8 GB estimate 10 GB"
    assert f"{heads} cascaded {parts} 13.5 GB 99900 22.0 % ancre" in page.text


def test_what_galores_code_would_print_is_told_beside_the_paper_and_nowhere_else(store: Any, tmp_path: Path) -> None:
    _, page = written(store, tmp_path, "measured")
    assert "31.50 ± 0.71 (n = 2) [30.40] cascaded" in page.text
    assert page.text.count("30.40") == 1
    assert "In brackets: ours as GaLore's code reckons it" in page.text
    assert "The paper prints this table as a picture: its text does not hold the numbers." in page.text


def test_overheads_stand_beside_table_6_metric_by_metric(store: Any, tmp_path: Path, make: Any) -> None:
    size = {"width": 1024, "depth": 24}
    trials = [
        make.Trial(
            arm,
            seed,
            value,
            topology={"kind": kind},
            extra={"model": size, "workload": "overhead"},
            more={"overhead/parameters": count, "train/tokens_per_second": 50e3 / value, "memory/peak": 30e9},
        )
        for arm, kind, value, count in (("cascaded", "cascaded", 1.0, 0), ("hc", "hyper-connections", 2.0, 172_656))
        for seed in range(2)
    ]
    store.study(
        "costs",
        trials,
        seeds=[0, 1],
        metric="overhead/slowdown",
        workload="overhead",
        tags={"ancre.published": "table6"},
        curve=lambda trial, _: trial.value,
    )
    _, page = written(store, tmp_path, "costs")
    assert "HC 172k 172656 46.76 30.00 43.6k 25000 2.29 2.000 ± 0 (n = 2) hc 345k" in page.text
    assert "mHC 172k not run" in page.text
    assert "Steps saved" not in page.text and "Learned topology" not in page.text


def test_linear_networks_stand_beside_theory(store: Any, tmp_path: Path) -> None:
    html, page = written(store, tmp_path, "linear")
    assert "theory for 0:1, 1/t^2" in html
    assert "0:2 ends 10.5 orders of magnitude below cascaded" in page.text
    assert "paper: 34.3 %" not in page.text


@pytest.mark.parametrize(
    ("study", "said"),
    [
        (
            "mixed",
            ["seed 2 diverged: train/loss is not finite at step 7", "seed 0 failed: out of memory", "seed 2 running"],
        ),
        ("one-seed", ["there is no interval: take it as a hint", "one seed: nothing to compare"]),
        (
            "all-diverged",
            [
                "no run has logged a metric yet",
                "No run has a value to rank by",
                "0 of 3 trials finished",
                "seed 1 diverged: NaN",
            ],
        ),
        ("all-nan", ["No run has a value to rank by", "val/perplexity ended as nan"]),
        ("just-started", ["no run has logged a metric yet", "Nothing was recorded", "not recorded"]),
        ("no-parent", ["No hypothesis was recorded", "The study file was not recorded"]),
        ("many", ["Drawn are the 10 best arms; 2 more are left out", "There is no cascaded arm to beat"]),
        ("hostile", ["no published table", "Sampler: grid"]),
    ],
)
def test_what_is_missing_is_said(store: Any, tmp_path: Path, study: str, said: list[str]) -> None:
    _, page = written(store, tmp_path, study)
    for line in said:
        assert line in page.text


def test_reports_of_nothing_leave_no_file(store: Any, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    for studies, said in (([], "at least one study"), (["small", "smal"], "did you mean 'small'")):
        with pytest.raises(QueryError, match=said):
            report(studies, out, store.uri)
    assert list(tmp_path.iterdir()) == []


def test_a_report_replaces_the_one_before(store: Any, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    out.write_text("before")
    report(["just-started"], out, store.uri)
    assert out.read_text().startswith("<!doctype html>")
    assert list(tmp_path.iterdir()) == [out]


def test_a_report_that_fails_leaves_the_one_before(store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "report.html"
    out.write_text("before")
    monkeypatch.setattr(Path, "replace", lambda self, target: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        report(["just-started"], out, store.uri)
    assert [(path, path.read_text()) for path in tmp_path.iterdir()] == [(out, "before")]


def test_a_damaged_topology_is_a_gap_in_the_report_not_its_end(store: Any, tmp_path: Path, make: Any) -> None:
    store.study("gap", [make.Trial("a", 0, 1.0, p=[[0, 1], [0, 0]])], seeds=[0])
    reader = open_store(store.uri)
    (run,) = reader.study("gap").runs
    (Path(run.artifact_uri) / "topology.json").write_text("{")
    _, page = written(store, tmp_path, "gap")
    assert "cannot be read" in page.text


def test_commands_name_the_home_and_the_metric_where_they_are_not_the_usual_ones(store: Any, tmp_path: Path) -> None:
    out = report(["small"], tmp_path / "report.html", store.uri, "tokens/s", Path("/my home")).path
    codes = Page(out.read_text(encoding="utf-8")).codes
    assert "ancre query cells small --metric tokens/s --format csv --home '/my home'" in codes
    assert "ancre report small --home '/my home'" in codes


def test_a_study_with_a_leading_dash_is_no_option(store: Any, tmp_path: Path, make: Any) -> None:
    store.study("-dash", [make.Trial("a", 0, 1.0)], seeds=[0])
    _, page = written(store, tmp_path, "-dash")
    assert "ancre query cells --format csv -- -dash" in page.codes


def test_facts_take_another_metric(store: Any) -> None:
    assert gather(open_store(store.uri), "small", "tokens/s").metric == "tokens/s"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (12.3, "12.30"),
        (0.0012345, "0.001234"),
        (1.2344e-9, "1.234e\N{MINUS SIGN}9"),
        (123456.0, "123456"),
        (1234567.0, "1.235e6"),
        (-0.5, "\N{MINUS SIGN}0.5000"),
        (0.0, "0"),
        (None, "\N{EN DASH}"),
        (float("inf"), "∞"),
        (float("nan"), "NaN"),
        (9.99996, "10.00"),
    ],
)
def test_numbers_as_shown(value: float | None, shown: str) -> None:
    assert number(value) == shown
