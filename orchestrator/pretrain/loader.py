"""The batches of a run as one worker sees them: its own rows, the next step's read while this one trains."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from orchestrator.errors import InputError
from orchestrator.pretrain.sequences import Stream
from orchestrator.shards.corpus import Numbers

Read = TypeVar("Read")


class Ahead(Generic[Read]):
    """What `read` makes of a step's number; the next step's is read in a thread while this one trains.

    A step's batch must follow from its number alone, so a run can begin at any.
    """

    def __init__(self, read: Callable[[int], Read]) -> None:
        self._read = read
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="loader")
        self._ahead: dict[int, Future[Read]] = {}  # this step's and the next one's

    def at(self, step: int) -> Read:
        """What belongs to a step. Raises what reading it raised."""
        ahead = self._ahead
        self._ahead = {near: ahead.get(near) or self._reader.submit(self._read, near) for near in (step, step + 1)}
        return self._ahead[step].result()

    def close(self) -> None:
        """End the thread that reads; a step that it is at is finished first."""
        self._reader.shutdown(cancel_futures=True)
        self._ahead.clear()


class Loader:
    """Rows rank * batch // count .. (rank + 1) * batch // count of each step's batch; no other row is read.

    A step's rows follow from its number alone, so a run can begin at any. The stream must not be used elsewhere
    meanwhile.

    Args:
        batch: windows a step, over all workers.
        rank: of this worker, of `count`.

    Raises:
        InputError: fewer windows than workers.
    """

    def __init__(self, stream: Stream, batch: int, rank: int = 0, count: int = 1) -> None:
        if batch < count:
            raise InputError(f"train.batch {batch} is smaller than the number of workers {count}")
        self._stream, self._batch = stream, batch
        self._begin, self._stop = rank * batch // count, (rank + 1) * batch // count
        self._ahead = Ahead(self._rows)

    def windows(self, step: int) -> Numbers:
        """This worker's windows of a step, (rows, length + 1). Raises what reading them raised."""
        return self._ahead.at(step)[0]

    def predictions(self, step: int) -> int:
        """How many tokens the whole batch of a step predicts, over all workers. Raises as `windows`."""
        return self._ahead.at(step)[1]

    def close(self) -> None:
        """End the thread that reads."""
        self._ahead.close()

    def _rows(self, step: int) -> tuple[Numbers, int]:
        first = step * self._batch
        rows = self._stream.windows(first + self._begin, self._stop - self._begin)
        return rows, self._stream.predictions(first, self._batch)
