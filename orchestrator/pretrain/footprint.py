"""What training a decoder keeps in memory, by formula: bytes of each category on one of the workers. No torch.

Of `fsdp`, each worker has its part of every weight, gradient and moment. Of a pipeline, the first stage is told of: it
has its blocks and a table, and as many micro-batches on the way as there are stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from analysis import names
from models.llama_spec import LlamaSpec
from models.optim.base import OptimSpec
from models.optim.parts import Shape, numbers
from models.topology.ancre_sparse import Spec as Sparse
from models.topology.base import TopologySpec
from orchestrator.pretrain.spec import BF16_WEIGHTS, TrainSpec

FLOAT32 = 4  # bytes
LOGITS = 2**23  # of the head that are held at once, as in models/losses.py


def memory(
    model: LlamaSpec, topology: TopologySpec, optim: OptimSpec, train: TrainSpec, length: int, workers: int = 1
) -> dict[str, int]:
    """Bytes by names.MEMORY on one of `workers` that train on sequences of `length`."""
    moment = 2 if train.precision == "pure-bf16" else FLOAT32
    shapes = _stage(model.shapes(topology), model.depth, train.stages)
    parts = workers if train.sharding == "fsdp" else 1
    weights = -(-numbers(s for s in shapes if s.part != "topology") * _state(train) // parts)
    weights += numbers(s for s in shapes if s.part == "topology") * FLOAT32
    largest = max(s.numbers // s.count for s in shapes) * _state(train)
    return {
        names.MEMORY_PARAMETERS: weights,
        names.MEMORY_GRADIENTS: largest if train.layerwise else weights,
        names.MEMORY_OPTIMIZER: -(-optim.state_numbers(shapes) * moment // parts),
        names.MEMORY_ACTIVATIONS: _activations(model, topology, train, length, shapes, workers),
    }


def passing(model: LlamaSpec, topology: TopologySpec, train: TrainSpec, length: int, workers: int = 1) -> int:
    """Bytes beside those that come and go within a step: of the head's logits, and of blocks that run again.

    A pipeline's last stage has all logits, and their gradient.
    """
    tokens = _sequences(train, workers) * length
    every = tokens * model.vocab_size
    head = FLOAT32 * (min(LOGITS, every) if train.stages == 1 else 2 * every)
    again = _segment(model, topology, train) if train.activation_checkpointing else 0  # blocks
    return head + tokens * again * _block(model, topology, train)


def _stage(shapes: Sequence[Shape], depth: int, stages: int) -> tuple[Shape, ...]:
    """The parameters of a pipeline's first stage: the longest there is, with the embedding."""
    if stages == 1:
        return tuple(shapes)
    blocks = -(-depth // stages)
    counts = {"table": 1, "topology": 1}
    return tuple(replace(s, count=counts.get(s.part, -(-s.count * blocks // depth))) for s in shapes)


def _activations(
    model: LlamaSpec, topology: TopologySpec, train: TrainSpec, length: int, shapes: Sequence[Shape], workers: int
) -> int:
    """What blocks and the topology's steps keep of the micro-batches that wait for their backward."""
    tokens = _sequences(train, workers) * length
    waiting = min(train.stages, -(-train.batch // (_sequences(train, workers) * _replicas(train, workers))))
    blocks = tokens * waiting * -(-model.depth // train.stages)
    ends = tokens * 2 * FLOAT32 * model.width  # of the last norm
    if train.activation_checkpointing:
        modules = 1 if model.granularity == "block" else 2  # whose inputs are kept
        state = _state(train)
        each = modules * state * model.width + topology.kept_bytes(model.width, state, checkpoint=True)
        return -(-blocks * each // _segment(model, topology, train)) + ends
    cast = 2 * numbers(s for s in shapes if s.part == "matrix") if train.precision == "bf16-mixed" else 0
    return blocks * _block(model, topology, train) + ends + cast


def _segment(model: LlamaSpec, topology: TopologySpec, train: TrainSpec) -> int:
    """Blocks that are run again together, at most."""
    if train.checkpoint_segment is None and isinstance(topology, Sparse) and topology.mask.startswith("boundary"):
        return max(stop - start for start, stop in pairwise(topology.edges(model.depth)))
    return min(train.checkpoint_segment or 1, model.depth)


def _block(model: LlamaSpec, topology: TopologySpec, train: TrainSpec) -> int:
    """Bytes per token that a block and its step keep."""
    every = model.activation_bytes(bfloat16=train.precision != "fp32", checkpoint=False)
    return every // model.depth + topology.kept_bytes(model.width, _state(train), checkpoint=False)


def _state(train: TrainSpec) -> int:
    """Bytes of a number of a state, as of a weight."""
    return 2 if train.precision in BF16_WEIGHTS else FLOAT32


def _replicas(train: TrainSpec, workers: int) -> int:
    return max(1, workers // train.stages)


def _sequences(train: TrainSpec, workers: int) -> int:
    """Of a micro-batch."""
    share = -(-train.batch // _replicas(train, workers))
    return min(train.micro_batch or share, share)
