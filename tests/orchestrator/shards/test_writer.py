"""Files of shards: numpy's format to the byte, and no file at all where the disk is full."""

import resource
from pathlib import Path

import numpy as np
import pytest

from orchestrator.shards.writer import save


@pytest.mark.parametrize("dtype", [np.uint16, np.int64, np.float16, np.uint8])
def test_files_are_numpys(tmp_path: Path, dtype: type) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    (tmp_path / "train").mkdir()
    save(tmp_path, "train/00000.tokens.npy", array)
    np.save(tmp_path / "numpys.npy", array)
    assert (tmp_path / "train" / "00000.tokens.npy").read_bytes() == (tmp_path / "numpys.npy").read_bytes()


def test_on_a_full_disk_there_is_no_cut_file(tmp_path: Path) -> None:
    """The last few bytes do not fit: numpy.save itself would leave a cut file and raise nothing."""
    (tmp_path / "train").mkdir()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            save(tmp_path, "train/00000.tokens.npy", np.zeros(2000, np.uint8))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not (tmp_path / "train" / "00000.tokens.npy").exists()
