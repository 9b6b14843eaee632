"""A checkpoint that many workers write and any number of them read: torch.distributed.checkpoint, in the background.

Every worker writes what it alone has; what all have, one writes. Tensors are named as in the whole network, so that
another number of workers, another way of sharding or another number of stages finds its own. Training goes on while a
copy of the state is written; what went wrong is told when the next one is due, or at the end.

torch keeps the list of tensors as a pickle, and loads anything else than tensors as another. Here the one is read for a
few harmless classes alone, and the other not at all: opening a stranger's folder must not run code.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor

from orchestrator.errors import InputError, one_line
from orchestrator.pretrain.checkpoint import Checkpoints
from orchestrator.pretrain.parallel import Workers

# Of one worker, for whom that is right.
warnings.filterwarnings("ignore", "torch.distributed is disabled, unavailable or uninitialized")

FLAT = StateDictOptions(flatten_optimizer_state_dict=True)
METADATA = ".metadata"
HARMLESS = {  # what torch's list of tensors is made of
    "collections": {"OrderedDict"},
    "pathlib": {"PosixPath"},
    "torch": {"Size", *(name for name in dir(torch) if isinstance(getattr(torch, name), torch.dtype))},
    "torch.serialization": {"_get_layout"},
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.distributed.checkpoint.metadata": {
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
}


class Saver:
    """Saves and loads the state of one training run with all `workers`, each of whom makes every call.

    Args:
        optimizer: of the network; its state is named by the parameters.
    """

    def __init__(
        self, checkpoints: Checkpoints, workers: Workers, network: nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        self.checkpoints, self.workers = checkpoints, workers
        self.network, self.optimizer = network, optimizer
        # Its talk must not mix with that of training, which goes on.
        self.group = dist.new_group(backend="gloo") if workers.count > 1 else None
        self.writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self.pending: list[Future[None]] = []

    def save(self, step: int, extra: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        """Take a copy of the state after `step` and begin to write it. `about`, JSON, is worker 0's.

        Raises:
            InputError: the disk did not take the one before.
        """
        self.wait()
        copy = {name: _copied(tensor) for name, tensor in _tensors(self._state(extra)).items()}
        self._later(lambda: self._write(step, copy, about))

    def note(self, step: int, loss: float) -> None:
        """Remember the held-out loss after `step`, once its checkpoint is there."""
        if self.workers.rank == 0:
            self._later(lambda: self.checkpoints.note(step, loss))

    def wait(self) -> None:
        """Until what was begun is on disk."""
        pending, self.pending = self.pending, []
        for done in pending:
            done.result()

    def close(self) -> None:
        """Wait, and end the writing thread."""
        try:
            self.wait()
        finally:
            self.writer.shutdown()

    def newest(self) -> int | None:
        """The step of the newest valid checkpoint, which worker 0 picks for all. Raises as `Checkpoints.newest`."""
        return self.workers.all(self.checkpoints.newest() if self.workers.rank == 0 else None)[0]

    def load(self, step: int, extra: Mapping[str, Tensor]) -> Any:
        """Fill network, optimizer and `extra` with what was saved after `step`; returns its `about`.

        Raises:
            InputError: it does not hold what this run needs, or holds anything but tensors.
        """
        state = self._state(extra)
        tensors = _tensors(state)
        _read(self.checkpoints.path(step), tensors, self.group)
        numbers = {n: t.item() for n, t in tensors.items() if not isinstance(state[n], Tensor)}
        state |= tensors | numbers
        own = {name.removeprefix("network."): value for name, value in state.items() if name.startswith("network.")}
        kept = {name.removeprefix("optim."): value for name, value in state.items() if name.startswith("optim.")}
        set_state_dict(self.network, self.optimizer, model_state_dict=own, optim_state_dict=kept, options=FLAT)
        return self.checkpoints.about(step)

    def _state(self, extra: Mapping[str, Tensor]) -> dict[str, Any]:
        network, optim = get_state_dict(self.network, self.optimizer, options=FLAT)
        named: dict[str, Any] = {f"network.{name}": value for name, value in network.items()}
        named |= {f"optim.{name}": value for name, value in optim.items()}
        return named | {f"extra.{name}": value for name, value in extra.items()}

    def _later(self, work: Callable[[], None]) -> None:
        self.pending.append(self.writer.submit(work))

    def _write(self, step: int, state: dict[str, Tensor], about: Mapping[str, Any]) -> None:
        checkpoints, first = self.checkpoints, self.workers.rank == 0
        try:
            scratch = [checkpoints.begin(step) if first else None]
            if self.group is not None:
                dist.broadcast_object_list(scratch, group=self.group)
            assert scratch[0] is not None
            save(
                state,
                storage_writer=FileSystemWriter(scratch[0], overwrite=False),
                process_group=self.group,
                no_dist=self.group is None,
            )
            if first:
                checkpoints.commit(step, scratch[0], about)
        except (CheckpointException, OSError, RuntimeError) as error:
            raise checkpoints.refused(step, error) from error


class Reader(FileSystemReader):
    """Reads the list of tensors without running anything in it."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        with Path(self.path, METADATA).open("rb") as file:
            try:
                metadata = Harmless(file).load()
            except pickle.UnpicklingError:
                raise
            except Exception as error:  # what pickle makes of arbitrary bytes: EOFError, IndexError, KeyError, ..
                raise pickle.UnpicklingError(f"not a list of tensors: {one_line(error)}") from error
        if not isinstance(metadata, Metadata):
            raise pickle.UnpicklingError("not a list of tensors")
        return metadata


class Harmless(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name in HARMLESS.get(module, ()):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name}")


class TensorsAlone(DefaultLoadPlanner):
    """Loads no pickled objects."""

    def load_bytes(self, read_item: Any, value: Any) -> None:
        raise pickle.UnpicklingError(str(read_item.dest_index.fqn))


def _tensors(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """What is saved of a state: its tensors, and numbers as such. The optimizer's settings are the trial's."""
    kept = ((name, value) for name, value in state.items() if not name.startswith("optim.param_groups."))
    return {name: value if isinstance(value, Tensor) else torch.tensor(value) for name, value in kept}


def _copied(tensor: Tensor) -> Tensor:
    """A copy on the CPU that training does not change."""
    if isinstance(tensor, DTensor):
        local = tensor.to_local().detach().to("cpu", copy=True)
        return DTensor.from_local(
            local, tensor.device_mesh, tensor.placements, shape=tensor.shape, stride=tensor.stride(), run_check=False
        )
    return tensor.detach().to("cpu", copy=True)


def read_network(folder: Path, network: nn.Module, under: str = "network") -> None:
    """Fill a network, whole on this process, with the weights in a checkpoint's folder, however it was sharded.

    Args:
        under: where its weights are: "network", or a part of the `extra` that was saved, such as "extra.ema".

    Raises:
        InputError: it does not hold this network's weights, or holds anything but tensors.
    """
    _read(folder, {f"{under}.{name}": tensor for name, tensor in network.state_dict().items()}, None)


def _read(folder: Path, tensors: dict[str, Tensor], group: dist.ProcessGroup | None) -> None:
    reader = Reader(str(folder))
    try:
        reader.read_metadata()  # torch tells of what is wrong there in a roundabout way
        load(
            tensors,
            storage_reader=reader,
            planner=TensorsAlone(),
            process_group=group,
            no_dist=group is None,
        )
    except (CheckpointException, pickle.UnpicklingError, OSError, RuntimeError, ValueError, KeyError) as error:
        raise InputError(f"{folder}: {_cause(error)}") from error


def _cause(error: BaseException) -> str:
    """In one line, what keeps a checkpoint from being loaded; of several workers, what the first one met."""
    first = next(_causes(error), error)
    if isinstance(first, pickle.UnpicklingError):
        return f"refused: it holds more than tensors ({str(first).split('. ')[0]})"  # torch goes on to advise otherwise
    return f"cannot be loaded: {one_line(first)}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, CheckpointException):
        yield from (failure[0] for _, failure in sorted(error.failures.items()))
