"""A small classifier of handwritten digits, trained here in seconds on the digits that are not held out.

The same seed gives the same weights on one machine. They are cached under all that decides them.
Smoothed labels keep it from being sure, so its Inception Score of real digits is about 5.6 of 10.
"""

from __future__ import annotations

import io
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from orchestrator.errors import InputError
from orchestrator.features.base import Features, FeatureSpec, Network
from orchestrator.image_shards.stream import Stream
from orchestrator.images.base import Images
from orchestrator.images.digits import Spec as Digits
from orchestrator.record.jsonl import replace

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Sequential

FORMAT = 1  # of network and training: another number trains anew
STEPS, BATCH, LR = 250, 64, 5e-3
POOL = 64  # features


class Spec(FeatureSpec):
    """A classifier of scikit-learn's digits, trained here: 64 pool features, 256 spatial ones, 10 classes."""

    kind: Literal["digits"] = "digits"
    seed: int = Field(default=0, ge=0, lt=2**31)

    def open(self, cache: Path, device: str = "cpu") -> Network:
        import torch

        digits = Digits()
        made_of = f"{FORMAT} {STEPS} {BATCH} {LR} {self.seed} {torch.__version__} {digits.fingerprint(cache)}"
        file = cache / "features" / f"digits-{sha256(made_of.encode()).hexdigest()[:16]}.pt"
        state = _kept(file)
        if state is None:
            state = _trained(self.seed, digits.open(cache).train)
            file.parent.mkdir(parents=True, exist_ok=True)
            replace(file, sha256(state).digest() + state)
        return Classifier(state, device)


class Classifier(Network):
    """The trained network, from the bytes of its state."""

    name = "digits classifier"

    def __init__(self, state: bytes, device: str) -> None:
        import torch

        weights = torch.load(io.BytesIO(state), map_location=device, weights_only=True)
        with torch.device("meta"):  # draws no random weights
            self.network = _network().eval()
        self.network.load_state_dict(weights, assign=True)
        self.device = device
        digest = sha256(str(FORMAT).encode())
        for name, tensor in weights.items():
            digest.update(name.encode() + tensor.cpu().numpy().tobytes())
        self.hash = digest.hexdigest()

    def features(self, x: NDArray[Any]) -> Features:
        import torch

        if x.shape[1:] != (1, 8, 8):
            raise InputError(f"{self.name}: it takes images of 1 x 8 x 8, not {' x '.join(map(str, x.shape[1:]))}")
        body, pool, head = self.network
        with torch.no_grad():
            maps = body(torch.as_tensor(x, dtype=torch.float32, device=self.device))  # (N, POOL, 4, 4)
            pooled = pool(maps)
            logits = head(pooled)
        spatial = maps[:, : POOL // 4].flatten(1)  # as sFID takes the first channels of one map
        return Features(*(tensor.cpu().numpy() for tensor in (pooled, spatial, logits)))

    def accuracy(self, images: Images) -> float:
        """Share of images whose class it names."""
        x, y = images.read(np.arange(len(images)))
        return float((self.features(x).logits.argmax(1) == y).mean())


def _kept(file: Path) -> bytes | None:
    """The state that a file holds after its hash; None: there is none, or it is damaged."""
    content = file.read_bytes() if file.exists() else b""
    state = content[sha256().digest_size :]
    return state if content == sha256(state).digest() + state else None


def _network() -> Sequential:
    """Feature maps, (N, POOL, 4, 4); their means, (N, POOL); logits, (N, 10)."""
    from torch import nn

    body = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, POOL, 3, padding=1, stride=2),
        nn.BatchNorm2d(POOL),
        nn.ReLU(),
        nn.Conv2d(POOL, POOL, 3, padding=1),
        nn.BatchNorm2d(POOL),
        nn.ReLU(),
    )
    return nn.Sequential(body, nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), nn.Linear(POOL, 10))


def _trained(seed: int, images: Images) -> bytes:
    """The state of the network after STEPS of AdamW with a linearly falling rate."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums on several threads differ from machine to machine
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        network = _network().train()
        optimizer = torch.optim.AdamW(network.parameters(), LR)
        stream = Stream(images, seed)
        for step in range(STEPS):
            optimizer.param_groups[0]["lr"] = LR * (1 - step / STEPS)
            _step(network, optimizer, *map(torch.from_numpy, stream.batch(step * BATCH, BATCH)))
    torch.set_num_threads(threads)
    content = io.BytesIO()
    torch.save(network.state_dict(), content)
    return content.getvalue()


def _step(network: Sequential, optimizer: Any, x: Tensor, y: Tensor) -> None:
    from torch.nn.functional import cross_entropy

    optimizer.zero_grad()
    cross_entropy(network(x), y, label_smoothing=0.1).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
