"""Pictures become a folder of images: decoded side by side, encoded in batches, committed shard by shard.

A run that was killed goes on after its last shard, to the same bytes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import InputError, printable
from orchestrator.image_shards.collect import Collected, Encoder
from orchestrator.image_shards.decode import Faulty, decode
from orchestrator.image_shards.folder import Manifest, Skipped
from orchestrator.image_shards.progress import PROGRESS, Progress
from orchestrator.image_shards.sources import Record, Source
from orchestrator.prepare.progress import refuse_other
from orchestrator.shards import folder as shards
from orchestrator.shards.hold import held

AHEAD = 64  # pictures that are read before they are used
EVERY = 5.0  # seconds between lines that say how far it is

IfFaulty = Literal["refuse", "skip"]


class Preparation:
    """One folder on its way to a manifest.

    Args:
        settings: all that decides the images, for the manifest: a folder of other settings is refused.
        if_faulty: whether a picture that cannot be used is refused or skipped; it is named either way.
        to_skip: what the user would write to skip them, for messages.
        shard: images of a shard, which are what a killed run repeats at most.
        workers: threads that decode.
    """

    def __init__(
        self,
        source: Source,
        encoder: Encoder,
        settings: dict[str, Any],
        *,
        if_faulty: IfFaulty,
        to_skip: str,
        shard: int,
        workers: int,
    ) -> None:
        self.source, self.encoder, self.settings = source, encoder, settings
        self.if_faulty, self.to_skip, self.shard, self.workers = if_faulty, to_skip, shard, workers

    def fill(self, out: Path, where: str, wait: bool = False) -> Manifest:
        """Make the folder, or go on with it, or find it done.

        Args:
            where: the name of the user's choice, for messages.
            wait: for another process that is at it.

        Raises:
            InputError: the source or the folder cannot be used, the folder is of other settings, a picture is refused.
        """
        with held(out, {shards.MANIFEST, PROGRESS}, where, wait):
            try:
                if not (out / shards.MANIFEST).exists():
                    with closing(Progress(out, self.settings)) as progress:
                        self._run(out, progress)
                (out / PROGRESS).unlink(missing_ok=True)
                shards.remove_scratch(out)
            except OSError as error:
                reason = error.strerror or str(error)
                raise InputError(f"{where}: {reason}; once that is mended, the same command goes on") from error
        manifest = shards.read_as(Manifest, out)
        refuse_other(out, manifest.settings, self.settings)
        shards.check_sizes(out, manifest.files)
        if manifest.skipped and self.if_faulty == "refuse":
            raise self._refused(manifest.skipped[0])
        return manifest

    def _run(self, out: Path, progress: Progress) -> None:
        shards.check_sizes(out, [file for one in progress.shards for file in (one.arrays_file, one.labels_file)])
        (out / "images").mkdir(exist_ok=True)
        with ThreadPoolExecutor(self.workers) as pool:
            self._read(out, progress, pool)
        if not progress.records:
            raise InputError(f"{self.source.where}: no picture in it")
        if not progress.shards:
            raise InputError(f"no picture that can be used among {progress.records}: {self._shown(progress.skipped)}")
        classes = self.source.num_classes
        if classes is not None and progress.classes > classes:
            raise InputError(f"class {progress.classes - 1} is out of range: the source names {classes} classes")
        if progress.skipped:
            print(f"skipped {len(progress.skipped)} of {progress.records} pictures: {self._shown(progress.skipped)}")
        manifest = Manifest(
            holds=self.encoder.holds,
            shape=self.encoder.shape,
            flips=self.encoder.flips,
            num_classes=progress.classes if classes is None else classes,
            settings=self.settings,
            skipped=tuple(progress.skipped),
            shards=tuple(progress.shards),
        )
        shards.write(out, manifest)

    def _read(self, out: Path, progress: Progress, pool: ThreadPoolExecutor) -> None:
        """What is left of the source."""
        said = began = time.monotonic()
        first = progress.records
        shard, skipped = Collected(self.encoder), list[Skipped]()
        number = first
        for number, (record, picture) in zip(count(first + 1), self._decoded(first, pool), strict=False):
            if isinstance(picture, Faulty):
                skipped.append(Skipped(name=printable(record.name), fault=printable(str(picture))))
                if self.if_faulty == "refuse":
                    raise self._refused(skipped[-1])
            else:
                shard.add(picture, record.label)
            if len(shard.labels) == self.shard:
                progress.commit(number, shard.write(out, len(progress.shards)), skipped, shard.classes)
                shard, skipped = Collected(self.encoder), []
            if time.monotonic() - said >= EVERY:
                said = time.monotonic()
                print(f"{number:,} pictures; {(number - first) / (said - began):.1f} a second", flush=True)
        written = shard.write(out, len(progress.shards)) if shard.labels else None
        progress.commit(number, written, skipped, shard.classes)

    def _decoded(self, first: int, pool: ThreadPoolExecutor) -> Iterator[tuple[Record, NDArray[np.uint8] | Faulty]]:
        """Records from `first` on, each with its pixels."""
        waiting = deque[tuple[Record, Future[NDArray[np.uint8] | Faulty]]]()
        for record in self.source.records(first):
            future = pool.submit(_attempt, record.content, self.encoder.size)
            waiting.append((record._replace(content=b""), future))
            if len(waiting) == AHEAD:
                record, future = waiting.popleft()
                yield record, future.result()
        yield from ((record, future.result()) for record, future in waiting)

    def _refused(self, picture: Skipped) -> InputError:
        return InputError(f"{picture.name}: {picture.fault}; mend or delete it, or skip such pictures: {self.to_skip}")

    def _shown(self, skipped: list[Skipped]) -> str:
        more = f" and {len(skipped) - 5} more, named in manifest.json" if len(skipped) > 5 else ""
        return "; ".join(f"{picture.name}: {picture.fault}" for picture in skipped[:5]) + more


def _attempt(content: bytes, size: int) -> NDArray[np.uint8] | Faulty:
    try:
        return decode(content, size)
    except Faulty as fault:
        return fault
