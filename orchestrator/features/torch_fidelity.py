"""torch-fidelity's copy of the Inception network of published FID, by a local file of its weights.

Pool features, (N, 2048), and logits without the bias, (N, 1008), are the library's. The spatial ones of sFID are the
first 7 channels of the 1 x 1 branch of the fourth 17 x 17 block, `mixed_6/conv` in the original graph: (N, 2023)
(Nash et al. 2021, section 4.2; Dhariwal & Nichol 2021).
"""

from __future__ import annotations

import pickle
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from numpy.typing import NDArray
from pydantic import Field

from orchestrator.data.base import existing
from orchestrator.errors import InputError, one_line
from orchestrator.features.base import Features, FeatureSpec, Network
from orchestrator.images.base import to_uint8

WEIGHTS = "https://github.com/toshas/torch-fidelity/releases/download/v0.2.0/weights-inception-2015-12-05-6726825d.pth"
PUBLISHED = "6726825d"  # how the SHA-256 of those weights begins
CHANNELS = 7


class Spec(FeatureSpec):
    """Inception of published FID, sFID, IS, precision and recall; needs torch-fidelity, and its weights as a file."""

    kind: Literal["torch-fidelity"] = "torch-fidelity"
    weights: str = Field(min_length=1)  # a file; relative to where the command is run

    def open(self, cache: Path, device: str = "cpu") -> Network:
        file = existing(self.weights)
        if file is None or not file.is_file():
            raise InputError(f"features.weights: {self.weights!r} is no file; it comes from {WEIGHTS}")
        return Inception(file, device)


class Inception(Network):
    """The network. Raises InputError where the library or its weights are not there."""

    name = "inception (torch-fidelity)"

    def __init__(self, file: Path, device: str) -> None:
        import torch

        try:
            from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3
        except ImportError as error:
            raise InputError(
                f"features: {one_line(error)}: pip install torch-fidelity, which needs torchvision"
            ) from error
        wanted = ["2048", "logits_unbiased"]
        try:
            torch.load(file, map_location="cpu", weights_only=True)  # the library itself would run a pickle's code
            self.network: Any = FeatureExtractorInceptionV3("inception", wanted, str(file)).to(device)
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, TypeError) as error:
            raise InputError(f"features.weights: {file}: no weights of Inception: {one_line(error)[:200]}") from error
        self.device, self._map = device, torch.empty(0)
        self.hash = sha256(file.read_bytes()).hexdigest()
        self.published = self.hash.startswith(PUBLISHED)
        self.network.Mixed_6d.branch1x1.register_forward_hook(self._keep)

    def features(self, x: NDArray[Any]) -> Features:
        import torch

        if x.shape[1] != 3:
            raise InputError(f"{self.name}: takes images of 3 channels, not {x.shape[1]}")
        with torch.no_grad():
            pool, logits = self.network(torch.from_numpy(to_uint8(x)).to(self.device))
        return Features(*(tensor.cpu().numpy() for tensor in (pool, self._map, logits)))

    def _keep(self, module: Any, inputs: Any, output: Any) -> None:
        self._map = output[:, :CHANNELS].flatten(1)
