"""Kept memory is used again without pages from the kernel: page faults of training steps, each in its own process."""

import subprocess
import sys

PROGRAM = """
import resource
import torch
from models.allocator import keep_freed_memory
if {keep}:
    assert keep_freed_memory()
torch.set_num_threads(1)
linear, x = torch.nn.Linear(1024, 1024, bias=False), torch.randn(8192, 1024)  # x and what comes out: 32 MiB, or more
for _ in range(12):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    linear(x).square().sum().backward()
    linear.zero_grad(set_to_none=True)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(keep: bool) -> int:
    program = PROGRAM.format(keep=keep)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_freed_memory_is_used_again_without_new_pages():
    assert faults(keep=True) < 0.1 * faults(keep=False)
