"""How the runs of an experiment are asked of a tracking server: in pages, oldest run first."""

from __future__ import annotations

from typing import Protocol

from analysis.store import Backend, RawRun

PAGE = 1000  # runs in one answer; a server gives no more than this unless asked, and does not say that there is more
ORDER = ["attributes.start_time ASC"]  # and by id where two started at once: a new run is behind all others
OPEN = ("RUNNING", "SCHEDULED")  # of MLflow's states


class PagedBackend(Backend, Protocol):
    """A store that is read page by page."""

    def page(
        self, experiment: str, filter: str = "", token: str = "", size: int = PAGE, deleted: bool = False
    ) -> tuple[list[RawRun], str]:
        """Runs of an experiment in `ORDER`, and the token of the next page, "" behind the last.

        Args:
            experiment: its id.
            filter: in MLflow's language.
            token: of the page; "": the first.
            size: of the page.
            deleted: the deleted runs instead of the active ones.
        """


def every(source: PagedBackend, experiment: str, filter: str = "", deleted: bool = False) -> list[RawRun]:
    """The runs of all pages, oldest first."""
    runs, token = source.page(experiment, filter, "", PAGE, deleted)
    while token:
        more, token = source.page(experiment, filter, token, PAGE, deleted)
        runs += more
    return sorted(runs, key=lambda run: (run.started, run.run_id))
