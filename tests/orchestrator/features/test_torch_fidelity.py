"""torch-fidelity's Inception, where the library is installed; and what is said where it or its weights are not."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from orchestrator.errors import InputError
from orchestrator.features.torch_fidelity import Spec

INSTALLED = find_spec("torch_fidelity") is not None


def test_weights_that_are_not_there_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"features\.weights: '.*' is no file; it comes from https://"):
        Spec(weights=str(tmp_path / "weights.pth")).open(tmp_path)


@pytest.mark.skipif(INSTALLED, reason="torch-fidelity is installed")
def test_without_the_library_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "weights.pth").write_bytes(b"")
    with pytest.raises(InputError, match="pip install torch-fidelity, which needs torchvision"):
        Spec(weights=str(tmp_path / "weights.pth")).open(tmp_path)


@pytest.mark.skipif(not INSTALLED, reason="torch-fidelity is not installed")
def test_features_of_random_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_fidelity import feature_extractor_inceptionv3 as library

    extractor = library.FeatureExtractorInceptionV3
    with monkeypatch.context() as patch:  # makes weights without fetching any
        patch.setattr(library, "load_state_dict_from_url", lambda *_, **__: {})
        patch.setattr(extractor, "load_state_dict", lambda *_: None)
        torch.save(extractor("inception", ["2048"]).state_dict(), tmp_path / "weights.pth")
    network = Spec(weights=str(tmp_path / "weights.pth")).open(tmp_path)
    x = np.random.default_rng(0).uniform(-1, 1, (2, 3, 64, 64)).astype(np.float32)
    features = network.features(x)
    assert [array.shape for array in features] == [(2, 2048), (2, 2023), (2, 1008)]
    assert not network.published  # other weights than the published ones
    (tmp_path / "weights.pth").write_bytes(b"no weights")
    with pytest.raises(InputError, match=r"weights\.pth: no weights of Inception"):
        Spec(weights=str(tmp_path / "weights.pth")).open(tmp_path)
