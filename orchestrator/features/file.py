"""A feature network from your own file, TorchScript or ONNX: images as uint8 in, (pool, spatial, logits) out.

The file is one function of images, (N, C, H, W), that gives three arrays of N rows each; resizing is its own affair.
Spatial features of sFID are flattened maps; a file that has none repeats its pool features there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from orchestrator.data.base import existing
from orchestrator.errors import InputError, one_line
from orchestrator.features.base import Features, FeatureSpec, Network
from orchestrator.images.base import to_uint8

Run = Callable[[NDArray[np.uint8]], Sequence[NDArray[Any]]]


class Spec(FeatureSpec):
    """Your own feature network: TorchScript (.pt) or .onnx, which needs onnxruntime."""

    kind: Literal["file"] = "file"
    path: str = Field(min_length=1)  # relative to where the command is run

    def open(self, cache: Path, device: str = "cpu") -> Network:
        file = existing(self.path)
        if file is None:
            raise InputError(f"features.path: {self.path!r} does not exist (looked from {Path.cwd()})")
        try:
            content = file.read_bytes()
        except OSError as error:
            raise InputError(f"features.path: {file}: cannot be read: {error.strerror}") from error
        run = _onnx(file, device) if file.suffix == ".onnx" else _torchscript(file, device)
        return FileNetwork(str(file), sha256(content).hexdigest(), run)


class FileNetwork(Network):
    """A function of images, with its name and hash."""

    def __init__(self, name: str, digest: str, run: Run) -> None:
        self.name, self.hash, self.run = name, digest, run
        self._widths: list[int] = []  # of the first images' features

    def features(self, x: NDArray[Any]) -> Features:
        shape = " x ".join(map(str, x.shape[1:]))
        try:
            arrays = [np.asarray(array) for array in self.run(to_uint8(x))]
        except Exception as error:  # whatever a stranger's function raises
            what = one_line(error)[-300:]
            raise InputError(f"{self.name}: cannot take images of uint8, {len(x)} x {shape}: {what}") from error
        found = ", ".join(f"{array.dtype} {array.shape}" for array in arrays)
        wanted = "wanted are three arrays of numbers with a row an image: pool, spatial, logits"
        if len(arrays) != 3 or not all(_rows_of_numbers(array, len(x)) for array in arrays):
            raise InputError(f"{self.name}: of {len(x)} images it gives {found}; {wanted}")
        if not all(np.isfinite(array).all() for array in arrays):
            raise InputError(f"{self.name}: gives features that are not finite")
        features = Features(*(array.reshape(len(x), -1) for array in arrays))
        widths = [array.shape[1] for array in features]
        self._widths = self._widths or widths
        if widths != self._widths:
            raise InputError(f"{self.name}: gives {widths} features an image; of earlier images {self._widths}")
        return features


def _rows_of_numbers(array: NDArray[Any], count: int) -> bool:
    return array.dtype.kind in "iuf" and array.size > 0 and array.shape[:1] == (count,)


def _torchscript(file: Path, device: str) -> Run:
    import torch

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`torch.jit.load` is deprecated", DeprecationWarning)
            network = torch.jit.load(file, map_location=device).eval()  # type: ignore[no-untyped-call]
    except (RuntimeError, ValueError) as error:
        raise InputError(f"features.path: {file}: is no TorchScript: {one_line(error)[:200]}") from error

    def run(pixels: NDArray[np.uint8]) -> list[NDArray[Any]]:
        with torch.no_grad():
            return [tensor.cpu().numpy() for tensor in network(torch.from_numpy(pixels).to(device))]

    return run


def _onnx(file: Path, device: str) -> Run:
    try:
        import onnxruntime
    except ImportError as error:
        raise InputError(f"features.path: {file}: needs onnxruntime: pip install onnxruntime") from error
    providers = ["CPUExecutionProvider"] if device == "cpu" else ["CUDAExecutionProvider", "CPUExecutionProvider"]
    try:
        session = onnxruntime.InferenceSession(str(file), providers=providers)
    except Exception as error:  # the library's own, without a common base
        raise InputError(f"features.path: {file}: is no ONNX: {one_line(error)[:200]}") from error
    inputs = [taken.name for taken in session.get_inputs()]
    if len(inputs) != 1:
        raise InputError(f"features.path: {file}: takes {len(inputs)} inputs; wanted is one, of images")

    def run(pixels: NDArray[np.uint8]) -> list[NDArray[Any]]:
        return list(session.run(None, {inputs[0]: pixels}))

    return run
