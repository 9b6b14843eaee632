"""`python tests/faults [WORD ..]`: provoke each fault that a sweep must survive (or those whose name has a WORD in it).

One line for each: its name, whether it was survived, and the seconds that this took. Exit code 1 where one was not.
"""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE, SWEEP, RECORD = "tests/faults", "tests/orchestrator/sweep", "tests/orchestrator/record"
PRETRAIN = "tests/orchestrator/pretrain"
IN_TURN = f"{HERE}/test_driver.py::test_a_driver_that_is_killed_interrupted_and_terminated_in_turn"
DAMAGED = f"{PRETRAIN}/test_checkpoint.py::test_a_damaged_checkpoint_leaves_the_one_before_it"
DIVERGED = [
    f"{SWEEP}/test_trainable.py::test_neither_the_loss_nor_what_ranks_may_be_other_than_finite",
    f"{SWEEP}/test_trainable.py::test_a_value_that_is_not_finite_ends_the_trial",
]
OUTAGE = f"{HERE}/test_outage.py"

FAULTS = {
    "worker killed": [f"{SWEEP}/test_run.py::test_what_diverges_fails_or_is_killed_does_not_stop_the_rest"],
    "worker of two killed": [f"{HERE}/test_workers.py::test_a_lost_worker_costs_no_step"],
    "driver killed, interrupted in an evaluation, terminated in a save": [IN_TURN],
    "driver interrupted twice": [f"{HERE}/test_driver.py::test_a_second_interrupt_does_not_wait"],
    "driver terminated while it starts": [f"{HERE}/test_driver.py::test_a_driver_that_is_terminated_while_it_starts"],
    "driver, worker or uploader killed at random": [f"{HERE}/test_soak.py"],
    "raylet killed, every process terminated": [f"{HERE}/test_lost_ray.py"],
    "node killed, then the head": [f"{HERE}/test_lost_node.py"],
    "machine of a spread trial killed": [f"{HERE}/test_two_machines.py"],
    "hung process, hung rank": [f"{HERE}/test_workers.py::test_a_hung_worker_is_ended_with_its_stacks_on_disk"],
    "two starts at once": [f"{RECORD}/test_lock.py", f"{SWEEP}/test_run.py::test_two_starts_at_once_are_refused"],
    "driver suspended while another took over": [
        f"{RECORD}/test_lock.py::test_who_was_suspended_and_followed_writes_no_more",
        f"{RECORD}/test_lock.py::test_what_an_earlier_attempt_still_writes_is_not_read",
    ],
    "trial started again beside itself": [f"{HERE}/test_superseded.py", f"{RECORD}/test_turn.py"],
    "tracking server away at the start, there, away at the end": [
        f"{OUTAGE}::test_a_server_that_comes_late_and_leaves_early"
    ],
    "tracking server that never answers": [f"{OUTAGE}::test_a_server_that_never_answers_holds_up_nobody"],
    "tracking server that answers 500": [f"{HERE}/test_tracking_server.py"],
    "disk full under a checkpoint": [
        f"{PRETRAIN}/test_checkpoint.py::test_a_full_disk_is_one_line_and_costs_no_earlier_checkpoint",
        f"{PRETRAIN}/test_sharded.py::test_a_full_disk_is_told_with_the_next_checkpoint_and_costs_no_earlier_one",
    ],
    "disk full under the ledger": [
        f"{RECORD}/test_jsonl.py::test_a_full_disk_leaves_whole_lines",
        f"{SWEEP}/test_sweep.py::test_a_ledger_that_cannot_be_written_is_remembered",
    ],
    "disk full under a spool": [f"{HERE}/test_disk_full.py"],
    "newest checkpoint truncated": [f"{DAMAGED}[truncated]"],
    "newest checkpoint of zero bytes": [f"{DAMAGED}[zero bytes]", f"{DAMAGED}[empty marker]"],
    "newest checkpoint without one rank": [
        f"{PRETRAIN}/test_parallel.py::test_a_missing_rank_leaves_the_checkpoint_before_it"
    ],
    "checkpoint of another world size": [
        f"{PRETRAIN}/test_parallel.py::test_a_checkpoint_serves_any_number_of_workers"
    ],
    "NaN and Inf": [*DIVERGED, f"{PRETRAIN}/test_loop.py::test_a_run_that_diverges_says_when_and_where"],
    "metric that never comes": [f"{SWEEP}/test_run.py::test_a_metric_that_never_comes_costs_no_trial_and_is_named"],
    "shard truncated or changed": ["tests/orchestrator/shards/test_folder.py::test_a_damaged_shard_is_named"],
}


def main(*words: str) -> int:
    """How many were not survived, 1 at most."""
    lost = False
    for name, tests in FAULTS.items():
        if words and not any(word in name for word in words):
            continue
        began = time.monotonic()
        done = subprocess.run([sys.executable, "-m", "pytest", *tests], cwd=ROOT, capture_output=True, text=True)
        verdict = "survived" if done.returncode == 0 else "NOT SURVIVED"
        print(f"{name:66} {verdict:14} {time.monotonic() - began:5.0f} s", flush=True)
        if done.returncode:
            lost = True
            print(done.stdout[-4000:], done.stderr[-1000:], sep="\n", file=sys.stderr)
    return int(lost)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
