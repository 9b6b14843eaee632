import pytest

from tests.faults.soak import soak


@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")
def test_three_random_kills(tmp_path):
    assert soak(tmp_path, kills=3, seed=1, steps=12).total() == 3
