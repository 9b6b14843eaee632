"""A job of SLURM: a batch script that starts Ray on its nodes, runs the study, and ends what it started.

Shortly before the time limit the study pauses and the job queues again; a job that is pre-empted pauses, and SLURM
queues it again. Starting anew is going on, since the study's ledger says what is missing.
"""

import argparse
import shlex
import shutil

from orchestrator.launch.job import MACHINES, Job, Prepared, System
from orchestrator.sweep.cluster import OBJECT_STORE

SCRIPT = "job.sbatch"
NOTICE = 120  # seconds before the time limit in which the study pauses
JOIN_SECONDS = 600  # for all nodes to join


def _prepare(job: Job, asked: argparse.Namespace) -> Prepared:
    command = ("sbatch", f"--chdir={job.folder}", str(job.folder / SCRIPT))
    return Prepared({SCRIPT: _script(job, asked)}, command, {})


def _missing() -> str:
    return "" if shutil.which("sbatch") else "sbatch, of SLURM: run this on a machine of the SLURM cluster"


def _script(job: Job, asked: argparse.Namespace) -> str:
    directives = [
        f"--job-name=ancre-{job.study.name}",
        f"--nodes={job.machines.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={job.machines.cpus}",
        *([f"--gpus-per-node={job.machines.gpus}"] if job.machines.gpus else []),
        *([f"--time={max(1, round(60 * asked.hours))}"] if asked.hours else []),  # minutes
        f"--signal=B:USR1@{NOTICE}",
        "--requeue",
        "--open-mode=append",
        "--output=slurm-%j.out",
        *(asked.sbatch or ()),
    ]
    settings = {
        "python": job.python,
        "study": str(job.study_file),
        "home": str(job.home),
        "RAY_AUTH_TOKEN_PATH": str(job.token),
        "code": str(job.code),
        "here": str(job.here),
    }
    head = ["#!/bin/bash", *(f"#SBATCH {option}" for option in directives)]
    values = [f"{name}={shlex.quote(value)}" for name, value in settings.items()]
    return "\n".join([*head, "set -u", *values, BODY])


BODY = f"""\
cd -- "$here" || exit
PYTHONPATH=$code:${{PYTHONPATH:-}}:$here
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH PYTHONPATH PYTHONSAFEPATH=1 RAY_USAGE_STATS_ENABLED=0
export RAY_raylet_start_wait_time_s=180 # 30 are few where Python is read from shared storage
echo "job $SLURM_JOB_ID, start $((${{SLURM_RESTART_COUNT:-0}} + 1))"

# Signals are for the study, which pauses; this script then goes on to its end.
running= heard= stopping= again=
hear() {{
    heard=yes stopping=yes
    [ -z "$running" ] || kill -TERM "$running" 2>/dev/null
}}
trap hear TERM INT
trap 'again=yes; hear' USR1 # the time limit is near

# Runs a command in the background, as bash hears no signal while it waits for one in front.
run() {{
    [ -z "$stopping" ] || return 143
    "$@" &
    running=$!
    while :; do
        heard=
        wait "$running"
        code=$?
        [ -n "$heard" ] || break
    done
    running=
    return "$code"
}}

# What was waited for ended first: the signal may have reached it, too.
leave() {{
    code=$?
    [ -z "$stopping" ] || code=143
    exit "$code"
}}

temporary=/tmp/ancre-$SLURM_JOB_ID
steps=()
end() {{
    trap '' TERM INT USR1
    [ ${{#steps[@]}} -eq 0 ] || kill -TERM "${{steps[@]}}" 2>/dev/null
    wait
    srun --nodes="$nodes" --ntasks="$nodes" rm -rf -- "$temporary"
}}
trap end EXIT

mapfile -t names < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
nodes=${{#names[@]}}
read -r ip port client < <("$python" -m orchestrator.launch.meeting)
ray=("$python" -m ray.scripts.scripts start --block --num-cpus="$SLURM_CPUS_PER_TASK"
    --min-worker-port=0 --max-worker-port=0 --object-store-memory={OBJECT_STORE})
srun --nodes=1 --ntasks=1 --nodelist="${{names[0]}}" "${{ray[@]}}" --head --node-ip-address="$ip" --port="$port" \\
    --include-dashboard=false ${{client:+"$client"}} --temp-dir="$temporary" &
steps+=($!)
if [ "$nodes" -gt 1 ]; then
    run "$python" -m orchestrator.launch.meeting "$ip:$port" 1 {JOIN_SECONDS} "${{steps[@]}}" || leave
    srun --nodes=$((nodes - 1)) --ntasks=$((nodes - 1)) --exclude="${{names[0]}}" "${{ray[@]}}" --address="$ip:$port" &
    steps+=($!)
fi
run "$python" -m orchestrator.launch.meeting "$ip:$port" "$nodes" {JOIN_SECONDS} "${{steps[@]}}" || leave
run "$python" -m orchestrator start "$study" --home "$home" --address "$ip:$port"
code=$?
[ -z "$again" ] || scontrol requeue "$SLURM_JOB_ID"
exit "$code"
"""


SYSTEM = System(_prepare, _missing, options=(*MACHINES, "hours", "sbatch"), sees_home=True)
