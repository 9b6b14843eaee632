"""Any residual topology around the decoder layers of a Hugging Face causal language model, in place.

    model = AutoModelForCausalLM.from_pretrained(folder)
    wire(model, Ancre(inner_residual="keep", temperature=0.1))

A decoder layer is a whole block, B_j(x) = x + r_j(x); where a topology asks for r_j, it is B_j(x) - x, up to rounding.
Hooks on the layers mix their states, outside of what gradient checkpointing runs again. Names of weights stay; those of
the topology come beside them, as `model.topology.c`. A token's states are mixed with that token's alone, so the cache
of keys and values stays right.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from models.stack import State, Topology
from models.topology.base import TopologySpec

PLACES = ("model.layers", "transformer.h")  # Llama, Qwen2 and 3, Mistral and what is built like them; GPT-2
NAME = "topology"  # of the module in the decoder
RECORD = "residual_topology"  # in the model's config, and so in config.json


def wire(model: nn.Module, topology: TopologySpec, *, saved: str | Path | None = None) -> Topology:
    """Connect the decoder layers of `model` by `topology`, which is trained, moved and saved with the model.

    A model is wired once. `save_pretrained` writes the coefficients beside the weights and the spec into config.json;
    `from_pretrained` reads the weights alone, and then `wire` the coefficients.

    Args:
        model: a causal language model whose decoder runs its layers one after the other, on one device.
        saved: the folder to which `save_pretrained` wrote the model when it was wired.

    Returns:
        The module that was put into the decoder.

    Raises:
        ValueError: in one line: no such decoder, wired before, a topology that cannot connect so many layers, or
            `saved` lacks its coefficients, or is missing although the model was saved with some.
    """
    place = next((place for place in PLACES if isinstance(found(model, place), nn.ModuleList)), None)
    if place is None:
        raise ValueError(f"{type(model).__name__} has no list of decoder layers at {' or '.join(PLACES)}")
    root = place.rpartition(".")[0]
    decoder, layers = model.get_submodule(root), model.get_submodule(place)
    assert isinstance(layers, nn.ModuleList)
    if hasattr(decoder, NAME):
        raise ValueError(f"{root}.{NAME} is there: a model is wired once; load it anew for another topology")
    devices = {p.device for p in layers.parameters()}
    if len(devices) != 1:
        raise ValueError(f"the decoder layers lie on {len(devices)} devices, not on one: {sorted(map(str, devices))}")
    config: Any = model.config
    built, spec = topology.build(len(layers), config.hidden_size), topology.model_dump(mode="json")
    known = getattr(config, RECORD, None)
    if saved is not None:
        restore(built, f"{root}.{NAME}", Path(saved))
    if known is not None and (saved is None or known != spec):
        wanted = "give saved=<its folder>" if saved is None else f"not with {spec}"
        raise ValueError(f"the model was saved with topology {known}: {wanted}")
    setattr(config, RECORD, spec)
    decoder.add_module(NAME, built.to(devices.pop()))
    Wired(built, layers).attach(decoder)
    return built


def found(model: nn.Module, place: str) -> Any:
    """What lies at a dotted name, or None."""
    for name in place.split("."):
        model = getattr(model, name, None)  # type: ignore[assignment]
    return model


def restore(topology: Topology, prefix: str, folder: Path) -> None:
    """Take the coefficients from the weights in `folder`, of which there may be several files."""
    from safetensors import SafetensorError, safe_open

    wanted = {f"{prefix}.{name}": parameter for name, parameter in topology.named_parameters()}
    missing = dict(wanted)
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt") as weights:
                found = {name: weights.get_tensor(name) for name in missing.keys() & set(weights.keys())}
        except (OSError, SafetensorError) as error:
            raise ValueError(f"{file}: cannot be read: {error}") from error
        for name, value in found.items():
            parameter = missing.pop(name)
            if value.shape != parameter.shape:
                raise ValueError(f"{file}: {name} has shape {[*value.shape]}, the topology {[*parameter.shape]}")
            parameter.data.copy_(value)
    if missing:
        raise ValueError(f"{folder}: no weights with {', '.join(missing)}")


@dataclass
class Forward:
    """One forward through a decoder: where its states are. `outer`: one that it runs within, of another model."""

    wired: Wired
    outer: Forward | None
    step: int = 0
    state: State | None = None


RUNNING: ContextVar[Forward | None] = ContextVar("running", default=None)  # of each thread and task its own


class Wired:
    """The hooks of one decoder. It holds nothing of a forward, and is copied and pickled with the model."""

    def __init__(self, topology: Topology, layers: nn.ModuleList) -> None:
        self.topology, self.layers = topology, layers

    def attach(self, decoder: nn.Module) -> None:
        decoder.register_forward_pre_hook(self.open)
        decoder.register_forward_hook(self.close, always_call=True)
        self.layers[0].register_forward_pre_hook(self.enter)
        for layer in self.layers:
            layer.register_forward_hook(self.leave, prepend=True)  # before those that record hidden states

    def open(self, decoder: nn.Module, args: Any) -> None:
        outer = RUNNING.get()
        RUNNING.set(Forward(self, None if outer is None or outer.wired is self else outer))

    def close(self, decoder: nn.Module, args: Any, output: Any) -> None:
        """Also where the decoder raised; `output` is None then."""
        running = RUNNING.get()
        if running is None or running.wired is not self:
            return
        RUNNING.set(running.outer)
        if output is not None and running.step < len(self.layers):
            raise ValueError(f"{type(decoder).__name__} ran {running.step} of {len(self.layers)} layers: wired for all")

    def enter(self, layer: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The first layer reads from the topology; the others are given what `leave` returned."""
        running = self._running(layer)
        if not args or not isinstance(args[0], Tensor):
            raise ValueError(f"{type(layer).__name__} is not called with its hidden states first")
        running.state = self.topology.start(args[0], "block")
        return running.state.read(), *args[1:]

    def leave(self, layer: nn.Module, args: Any, output: Any) -> Tensor:
        running = self._running(layer)
        if not isinstance(output, Tensor) or running.state is None:
            raise ValueError(f"{type(layer).__name__} returned {type(output).__name__}, not its hidden states alone")
        running.state.write(output)
        running.step += 1
        return running.state.finish() if running.step == len(self.layers) else running.state.read()

    def _running(self, layer: nn.Module) -> Forward:
        running = RUNNING.get()
        if running is None or running.wired is not self:
            raise ValueError(f"a wired {type(layer).__name__} was called by itself, outside of its decoder's forward")
        if running.step >= len(self.layers) or self.layers[running.step] is not layer:
            raise ValueError(f"a wired {type(layer).__name__} was called out of order, at step {running.step + 1}")
        return running
