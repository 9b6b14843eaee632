"""Makes `toys` importable, so that a study can name a workload from outside the package: `toys.bowl`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
WORKER = Path(__file__).with_name("several_workers.py")


@pytest.fixture
def spread(tmp_path, cache):
    """The rows that each of `count` processes gets; `rows` stops them early."""

    def start(trial, folder: str, count: int = 2, rows: int | None = None) -> list[list]:
        arguments = {
            "count": count,
            "meeting": str(tmp_path / f"meeting-{folder}-{count}-{rows}"),
            "trial": trial.model_dump_json(),
            "folder": str(tmp_path / folder),
            "cache": str(cache),
            "rows": rows,
        }
        processes = [
            subprocess.Popen(
                [sys.executable, WORKER, json.dumps(arguments | {"rank": rank})],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(count)
        ]
        answers = [process.communicate(timeout=120) for process in processes]
        assert [process.returncode for process in processes] == [0] * count, answers
        return [[json.loads(line) for line in out.splitlines()] for out, _ in answers]

    return start
