"""What `ancre data prepare` does: read, tokenize in parallel, commit shard by shard, write the manifest last.

Held-out text comes first, then training text; where the one is a fraction of the other, both sides are written in one
go. A commit closes the shards of both sides at one document, so a killed run begins again right after it, and every
byte of the folder follows from the source, the tokenizer and the settings alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from itertools import islice
from pathlib import Path

import numpy as np

from orchestrator.errors import InputError
from orchestrator.prepare.pool import Batch, Encoded, Pool
from orchestrator.prepare.progress import PROGRESS, Position, Progress, refuse_other
from orchestrator.prepare.settings import Settings
from orchestrator.prepare.sources import BOTH, Source, sources
from orchestrator.prepare.tokenizer import tokenizer_file, tokenizer_json
from orchestrator.prepare.watch import Watch
from orchestrator.record import jsonl
from orchestrator.shards import folder as shards
from orchestrator.shards.encoder import Encoder
from orchestrator.shards.hold import held
from orchestrator.shards.writer import Writer

BATCH = 2**17  # characters of one task of a process: some 50 ms


def prepare(settings: Settings, out: Path, workers: int) -> shards.Manifest:
    """Fill the folder `out` with shards, or go on with that, or find it done.

    Raises:
        InputError: the source, the tokenizer or the folder cannot be used, or the folder is of other settings.
    """
    with held(out, {shards.MANIFEST, PROGRESS, shards.TOKENIZER}, f"--out {out}"):
        try:
            if (out / shards.MANIFEST).exists():
                manifest = shards.read(out)
                refuse_other(out, manifest.source, settings.model_dump(mode="json"))
                shards.check_sizes(out, manifest.files)
                _refuse_changed_tokenizer(settings, out)
                print(f"{out}: done already")
            else:
                with closing(Preparation(settings, out, workers)) as preparation:
                    preparation.run()
            (out / PROGRESS).unlink(missing_ok=True)
            shards.remove_scratch(out)
        except BrokenPipeError:  # nobody reads what it prints
            raise
        except OSError as error:
            reason = error.strerror or f"{error}: is the disk full?"  # numpy does not say why a write fell short
            raise InputError(f"--out {out}: {reason}; once that is mended, the same command goes on") from error
    return shards.read(out)


def _refuse_changed_tokenizer(settings: Settings, out: Path) -> None:
    """Where the tokenizer is a file of the user's: that it still is the one that the folder was begun with."""
    given = tokenizer_file(settings)
    if given and given.read_bytes() != (out / shards.TOKENIZER).read_bytes():
        raise InputError(
            f"{given} is not the tokenizer that {out} was begun with: give another --out, or delete that one"
        )


class Preparation:
    """One folder on its way to a manifest."""

    def __init__(self, settings: Settings, out: Path, workers: int) -> None:
        self.settings, self.out = settings, out
        self.sources = sources(settings)
        self.progress = Progress(out, settings)
        if self.progress.resumed:
            self._check_resumed()
        else:
            jsonl.replace(out / shards.TOKENIZER, tokenizer_json(settings, self.sources))
        self.tokenizer = (out / shards.TOKENIZER).read_bytes()
        where = f"--tokenizer: {settings.tokenizer}"
        self.encoder = Encoder.load(self.tokenizer, where)
        self.pool = Pool(workers, self.tokenizer, where)
        self.watch = Watch(workers)

    def run(self) -> None:
        """From where the folder is to its manifest."""
        for number in range(self.progress.position.source, len(self.sources)):
            self._read(number)
        train, validation = (shards.Side.of(self.progress.shards[side]) for side in shards.SIDES)
        if not (train.documents and validation.documents):
            raise InputError(
                f"{train.documents} documents to train on and {validation.documents} held out: give more, "
                f"another --val-fraction than {self.settings.val_fraction:g}, or --val; and delete {self.out}"
            )
        manifest = shards.Manifest(
            tokenizer=self.settings.tokenizer,
            tokenizer_sha256=sha256(self.tokenizer).hexdigest(),
            vocabulary=self.encoder.vocabulary,
            end=self.encoder.end,
            source=self.settings.model_dump(mode="json"),
            train=train,
            validation=validation,
        )
        shards.write(self.out, manifest)

    def close(self) -> None:
        self.watch.close()
        self.pool.close()
        self.progress.close()

    def _check_resumed(self) -> None:
        """That what is committed is still there, and comes from what would be read now."""
        tokenizer = self.out / shards.TOKENIZER
        if not tokenizer.exists():
            raise InputError(f"{tokenizer}: missing; restore it, or delete {self.out} and make it anew")
        _refuse_changed_tokenizer(self.settings, self.out)
        position = self.progress.position
        written = [shard for side in self.progress.shards.values() for shard in side]
        shards.check_sizes(self.out, [file for shard in written for file in shard.files])
        if position.document:  # else a source begins here
            source = [*self.sources.values()][position.source]
            if self.progress.read != source.fingerprint(position.part + 1):
                raise InputError(
                    f"{self.settings.source}: changed since {self.out} was begun: "
                    "bring back what was there, or give another --out"
                )

    def _read(self, number: int) -> None:
        """Read a source to its end or limit, and commit."""
        name, source = [*self.sources.items()][number]
        held_below = {BOTH: self.settings.val_fraction, "train": 0.0, "validation": 1.0}[name]
        self.position = replace(self.progress.position, source=number)
        self.writers = {side: Writer(self.out, side, len(self.progress.shards[side])) for side in shards.SIDES}
        for encoded in self.pool.encoded(self._batches(source), held_below):
            self._add(encoded, source)
            self.watch.show(name, self.position.part, source.num_parts, encoded)
            if not self._room:
                break
        self._commit(Position(number + 1), "")

    def _batches(self, source: Source) -> Iterator[Batch]:
        """What is left of the source, in tasks for the pool."""
        if not self._room:
            return
        batch, size = Batch([], []), 0
        limit = self.settings.limit and max(0, self.settings.limit - self.position.documents)
        for document, position in islice(_documents(source, self.position), limit):
            batch.documents.append(document)
            batch.positions.append(position)
            size += len(document)
            if size >= BATCH:
                yield batch
                batch, size = Batch([], []), 0
        if batch.documents:
            yield batch

    @property
    def _room(self) -> int:
        """Tokens of the source until the limit."""
        limit = self.settings.limit_tokens
        return 2**62 if limit is None else max(0, limit - self.position.tokens)

    def _add(self, encoded: Encoded, source: Source) -> None:
        """Hand documents to the writers, up to the limit, and commit each time that a shard is full."""
        done, stops = 0, np.cumsum(encoded.lengths)
        while done < stops.size and (room := self._room):
            full = self.settings.shard_tokens - self._pending
            begin = int(stops[done - 1]) if done else 0
            stop = min(int(np.searchsorted(stops, begin + min(full, room))) + 1, stops.size)
            self._hand_over(encoded, slice(done, stop), slice(begin, int(stops[stop - 1])))
            part, document = encoded.positions[stop - 1]
            before = self.position
            tokens = before.tokens + int(stops[stop - 1]) - begin
            self.position = Position(before.source, part, document, before.documents + stop - done, tokens)
            if self._pending >= self.settings.shard_tokens:
                self._commit(self.position, source.fingerprint(part + 1))
            done = stop

    @property
    def _pending(self) -> int:
        """Tokens that are not committed."""
        return sum(writer.size for writer in self.writers.values())

    def _hand_over(self, encoded: Encoded, documents: slice, tokens: slice) -> None:
        lengths, held_out = encoded.lengths[documents], encoded.held_out[documents]
        of_held_out = np.repeat(held_out, lengths)
        for side, mine, own in (("train", ~held_out, ~of_held_out), ("validation", held_out, of_held_out)):
            self.writers[side].add(encoded.tokens[tokens][own], lengths[mine])

    def _commit(self, position: Position, read: str) -> None:
        self.progress.commit(position, {side: writer.write() for side, writer in self.writers.items()}, read)


def _documents(source: Source, position: Position) -> Iterator[tuple[str, tuple[int, int]]]:
    """The documents after a position, each with (part, documents of that part up to it)."""
    for part in range(position.part, source.num_parts):
        skipped = position.document if part == position.part else 0
        for number, document in enumerate(source.documents(part), start=1):
            if number > skipped:
                yield document, (part, number)
