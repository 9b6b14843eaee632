"""`ancre play`: one evaluation episode of a trained agent, as a file to look at.

What is shown depends on the environment: a top view of every one, and the moving body where there is one.
"""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path

from orchestrator.errors import InputError
from orchestrator.trials import find
from orchestrator.workloads.crl import Spec


def play(run: str, home: Path, out: Path | None = None, seed: int = 0) -> Path:
    """Play the newest checkpoint of a trial and write what happened.

    Args:
        run: a trial's id or an MLflow run's, or the start of one.
        home: the home folder.
        out: an .html file, or a .png of the top view; default: HOME/plays/TRIAL.html.
        seed: of the episode's start and goal.

    Returns:
        The file that was written.

    Raises:
        InputError: no such trial, none of contrastive RL, no checkpoint, or a file that cannot be written.
    """
    found = find(run, home, Spec, "played")
    out = out or home / "plays" / f"{found.trial}.html"
    if out.suffix not in (".html", ".png"):
        raise InputError(f"--out {out}: should end in .html or .png")
    from orchestrator.play.episode import episode  # torch and jax
    from orchestrator.play.page import page, picture

    with redirect_stdout(io.StringIO()):  # MuJoCo prints which accelerators it lacks
        played = episode(found, seed)
        content = picture(played) if out.suffix == ".png" else page(found, played).encode()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(content)
    except OSError as error:
        raise InputError(f"--out {out}: cannot be written: {error.strerror}") from error
    return out
