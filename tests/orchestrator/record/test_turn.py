import pytest

from orchestrator.record.turn import TURN_FILE, Superseded, Turn, starts


def test_the_last_start_may_write(tmp_path):
    first = Turn(tmp_path, Turn.take(tmp_path, 1))
    first.check()
    second = Turn(tmp_path, Turn.take(tmp_path, 1))
    second.check()
    with pytest.raises(Superseded, match="was started again"):
        first.check()
    assert (first.number, second.number, starts(tmp_path)) == (1, 2, 2)


def test_an_earlier_attempt_starts_nothing_that_a_later_one_has_started(tmp_path):
    later = Turn(tmp_path, Turn.take(tmp_path, 5))
    with pytest.raises(Superseded, match="attempt 5"):
        Turn.take(tmp_path, 4)
    later.check()


@pytest.mark.parametrize("content", ["", "[]", '{"attempt": "1"}', '{"attempt": 9, "number": 1}', "[" * 100_000])
def test_a_damaged_file_is_as_good_as_none(tmp_path, content):
    (tmp_path / TURN_FILE).write_text(content)
    assert starts(tmp_path) == 0
    Turn(tmp_path, Turn.take(tmp_path, 1)).check()
