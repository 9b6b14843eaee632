"""CPU seconds of `ancre plan` for a study of 100 and of 100,000 configurations, each in a process of its own.

python tests/benchmarks/plan.py
"""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

STUDY = """
name = "wide"
workload = "llm"
[trial]
model.size = "nano"
data.kind = "python-docs"
optim.kind = "adamw"
train = {{ steps = 100, batch = 16 }}
[arms.cascaded]
topology.kind = "cascaded"
[arms.drop]
topology = {{ kind = "ancre", inner_residual = "drop" }}
[axes]
"optim.lr" = {{ center = 1e-3, factor = 1.01, count = {rates} }}
"optim.weight_decay" = {{ center = 1e-2, factor = 1.01, count = {decays} }}
"train.steps" = [100, 200]
"topology.temperature" = {{ center = 1e-2, factor = 1.1, count = {temperatures} }}
"""
# Cells: 2 arms share rates x decays x 2, and one of them has temperatures besides.
SIZES = {100: (5, 2, 4), 100_000: (250, 8, 24)}


def cpu_seconds(study: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "wide.toml"
        file.write_text(study)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "orchestrator", "plan", str(file)], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


if __name__ == "__main__":
    for cells, (rates, decays, temperatures) in SIZES.items():
        assert rates * decays * 2 * (1 + temperatures) == cells
        text = STUDY.format(rates=rates, decays=decays, temperatures=temperatures)
        print(f"plan of {cells:,} cells: {cpu_seconds(text):.2f} s of CPU")
