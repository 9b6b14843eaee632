"""What `ancre query` takes on the command line. It imports nothing, as `ancre --help` waits for it."""

import argparse
from collections.abc import Sequence
from pathlib import Path

QUESTIONS = {
    "best": "the best configurations: n, mean, sd and 95 % interval over seeds",
    "cells": "all configurations",
    "runs": "all runs",
    "missing": "configurations without all their seeds, why, and the command that goes on",
    "diverged": "for each value of each axis, the share of trials that diverged, first step and metric",
    "edges": "where an arm's best value lies at the end of what was tried, and what to try next",
    "importance": "which axes matter: Optuna's fANOVA over each arm's configurations",
    "topology": "learned connections over seeds, beside chance",
    "curves": "mean learning curves",
    "depths": "what happens at each depth",
}
FORMATS = ("table", "json", "csv", "parquet")


def query_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them to the parser of the command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = "Ask MLflow about a study:\n" + "\n".join(
        f"  {word:11} {said}" for word, said in QUESTIONS.items()
    )
    parser.epilog = "fields: " + (
        "what a table shows, an entry of the spec by its path or its last parts\n(model.depth, depth), a metric. "
        "example: ancre query cells demo --where\n\"lr >= 0.001 and topology.kind in ('ancre', 'cascaded')\" "
        "--sort -lr --columns arm,lr,mean"
    )
    add = parser.add_argument
    add("what", metavar="QUESTION", choices=tuple(QUESTIONS), help=", ".join(QUESTIONS))
    add("study", metavar="STUDY", help="the study's name")
    add("--metric", help="rank by this metric (default: the study's)")
    add("--mode", choices=("min", "max"), help="which end is best (default: the study's, else the metric's)")
    add("--top", type=int, default=10, help="how many configurations `best` lists (default: %(default)s)")
    add("--cell", help="topology, curves, depths: of this cell (default: each arm's best)")
    add(
        "--where",
        metavar="CONDITION",
        help="of these runs (runs, diverged) or cells (all others) only; with and, or, not, in, ( ) and = != < <= > >=",
    )
    add("--sort", metavar="FIELD,-FIELD", help="in this order; - for the largest first")
    add("--columns", metavar="FIELD,FIELD", help="show these fields only")
    add("--format", choices=FORMATS, help="default: by the name of --out, else table; parquet needs --out")
    add("--out", type=Path, metavar="FILE", help="write to this file instead")


def with_sort(words: Sequence[str]) -> list[str]:
    """The words of a command line, with `--sort -lr` as `--sort=-lr`: argparse would take -lr for an option."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] == "--sort":
            joined[-1] = f"--sort={word}"
        else:
            joined.append(word)
    return joined
