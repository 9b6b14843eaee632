"""The formula for memory: against what a step really keeps, and how workers, stages and streams divide it."""

import pytest
import torch

from analysis import names
from models.llama_spec import LlamaSpec
from models.optim.adamw import Spec as AdamW
from models.topology import ancre, cascaded, hyper_connections, mhc
from models.topology.base import TopologySpec
from orchestrator.pretrain import footprint, trained
from orchestrator.pretrain.measure import Memory
from orchestrator.pretrain.parallel import Workers
from orchestrator.pretrain.spec import TrainSpec

MODEL = LlamaSpec(width=128, ffn_width=344, depth=6, heads=4, vocab_size=512)
LENGTH = 64
CASCADED = cascaded.Spec()
TOPOLOGIES: dict[str, TopologySpec] = {
    "cascaded": CASCADED,
    "ancre": ancre.Spec(),
    "hyper-connections": hyper_connections.Spec(),
    "mhc": mhc.Spec(),
}


def train(**changes: object) -> TrainSpec:
    return TrainSpec.model_validate({"steps": 1, "batch": 4} | changes)


def estimated(spec: TrainSpec, topology: TopologySpec = CASCADED, workers: int = 1) -> list[int]:
    found = footprint.memory(MODEL, topology, AdamW(lr=1e-3), spec, LENGTH, workers)
    return [found[name] for name in names.MEMORY]


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed", "pure-bf16"])
@pytest.mark.parametrize("kind", TOPOLOGIES)
def test_it_is_what_a_step_keeps(kind: str, precision: str, again: bool) -> None:
    spec, workers = train(precision=precision, activation_checkpointing=again), Workers.here()
    network = MODEL.build(TOPOLOGIES[kind], checkpoint=again)
    spread = trained.spread(network, spec, LENGTH, workers)
    optimizer = trained.optimizer(AdamW(lr=1e-3), spread, spec)
    memory = Memory(network, optimizer, workers.device)
    memory.watch()
    spread.step([torch.randint(512, (4, LENGTH + 1))], 1 / (4 * LENGTH))
    memory.backward()
    optimizer.step()
    found = memory.metrics()
    *weights, activations = estimated(spec, TOPOLOGIES[kind])
    assert weights == pytest.approx([found[name] for name in names.MEMORY[:3]], rel=0.01)
    assert 0.99 < activations / found[names.MEMORY_ACTIVATIONS] < 1.18


def test_sharding_divides_weights_gradients_and_moments_and_not_coefficients() -> None:
    topology = ancre.Spec()
    alone, shared = estimated(train(), topology), estimated(train(sharding="fsdp"), topology, 4)
    coefficients = topology.num_coefficients(MODEL.depth)
    assert shared[:2] == [alone[0] // 4 + 3 * coefficients] * 2
    assert shared[2] == alone[2] // 4
    assert shared[3] < alone[3] / 3.9  # a sequence each
    assert estimated(train(micro_batch=1), workers=4) == estimated(train(micro_batch=1))  # DDP keeps all on each


def test_the_first_stage_has_its_blocks_the_embedding_and_a_micro_batch_for_each_stage() -> None:
    whole, stage = estimated(train(micro_batch=1)), estimated(train(micro_batch=1, stages=2), workers=2)
    table, norm = 512 * 128 * 4, 128 * 4
    blocks = whole[0] - 2 * table - norm
    assert stage[0] == pytest.approx(table + blocks / 2 + norm, abs=norm)
    assert stage[2] == 2 * stage[0]
    assert stage[3] == pytest.approx(whole[3], rel=0.05)  # half the blocks, twice the micro-batches
    few = estimated(train(micro_batch=4, stages=2), workers=2)
    assert few[3] == pytest.approx(estimated(train())[3] / 2, rel=0.05)  # there is one micro-batch alone


def test_layerwise_steps_hold_one_gradient() -> None:
    assert estimated(train(layerwise=True))[1] == 512 * 128 * 4


def test_streams_keep_more_and_recomputing_them_less() -> None:
    """Each block's state is four: in float32 they are kept as they were read, mixed, and beside what the block adds."""
    four = hyper_connections.Spec()
    tokens = 4 * LENGTH * MODEL.depth
    extra = estimated(train(), four)[3] - estimated(train())[3]
    assert extra == tokens * 4 * ((4 + 4 + 1) * 128 + 4 * 24)
    again = [estimated(train(activation_checkpointing=True), topology)[3] for topology in (four, CASCADED)]
    assert again[0] - again[1] == tokens * 3 * 4 * 128
