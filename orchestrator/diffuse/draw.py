"""`ancre sample`: images of chosen classes, drawn with the averaged weights of a trial's newest checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile

from orchestrator.answers import writing
from orchestrator.errors import InputError
from orchestrator.record.jsonl import replace
from orchestrator.trials import Found, find
from orchestrator.workloads.dit import Spec

FIRST = 10  # classes that are drawn where none are named


def draw(
    run: str,
    home: Path,
    out: Path | None = None,
    *,
    classes: Sequence[int] | None = None,
    count: int = 8,
    steps: int | None = None,
    cfg: float | None = None,
    seed: int = 0,
) -> Path:
    """Write a picture with a row a class.

    Args:
        run: a trial's id or an MLflow run's, or the start of one.
        out: a .png file; default: HOME/samples/TRIAL.png.
        classes: by number; default: up to the first FIRST.
        count: images of each class.
        steps, cfg: of sampling, and the scale of guidance; default: as the trial's evaluation.
        seed: of the first image of each class; the next ones have the next seeds.

    Returns:
        The file that was written.

    Raises:
        InputError: no such trial, none of diffusion, no checkpoint, no such class, images that are not finite, or a
            file that cannot be written.
    """
    found = find(run, home, Spec, "sampled")
    out = out or home / "samples" / f"{found.trial}.png"
    checkpoint = _checkpoint(found)
    labels = [*(range(min(FIRST, found.spec.model.num_classes)) if classes is None else classes)]
    try:
        found.spec.model.check_classes(labels)
    except ValueError as error:
        raise InputError(f"--classes: {error}") from error
    _check_out(out)
    changed = {name: value for name, value in (("steps", steps), ("cfg", cfg)) if value is not None}
    content = _drawn(found.spec, checkpoint, labels, count, changed, seed)
    with writing(out):
        replace(out, content)
    return out


def _checkpoint(found: Found[Spec]) -> Path:
    from orchestrator.pretrain.checkpoint import Checkpoints

    checkpoints = Checkpoints(found.folder / "checkpoints", found.spec.model_dump(mode="json"))
    newest = checkpoints.newest()
    if newest is None:
        hint = "" if found.spec.train.checkpoint_every else "; its train.checkpoint_every is 0"
        raise InputError(f"trial {found.trial} of study {found.study} has no checkpoint to sample{hint}")
    return checkpoints.path(newest)


def _check_out(out: Path) -> None:
    """Before hours of drawing."""
    if out.suffix != ".png" or out.is_dir():
        raise InputError(f"--out {out}: should be a file that ends in .png")
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=out.parent).close()


def _drawn(spec: Spec, checkpoint: Path, labels: list[int], count: int, changed: dict[str, float], seed: int) -> bytes:
    import numpy as np
    import torch

    from models.diffusion import linear
    from models.sampling import sample
    from orchestrator.diffuse.decode import decoder
    from orchestrator.diffuse.loop import EMA
    from orchestrator.diffuse.picture import grid
    from orchestrator.pretrain.parallel import Workers
    from orchestrator.pretrain.sharded import read_network

    device = Workers.here().device
    network = spec.model.build(spec.topology)
    read_network(checkpoint, network, f"extra.{EMA}")
    how = spec.evaluate.sampling.model_copy(update=changed)
    mixed = spec.train.precision == "bf16-mixed"
    every = [label for label in labels for _ in range(count)]
    with torch.autocast(device.type, torch.bfloat16, enabled=mixed):
        x = sample(
            network.to(device).eval(),
            linear().to(device),
            every,
            [seed + number for _ in labels for number in range(count)],
            how,
            batch=spec.evaluate.batch,
        )
    pixels = decoder(spec.images, spec.evaluate.vae, str(device))(x)
    if not np.isfinite(pixels).all():
        raise InputError(f"what is drawn is not finite: at --cfg {how.cfg:g}, or the trial's weights have diverged")
    return grid(pixels.reshape(len(labels), count, *pixels.shape[1:]))
