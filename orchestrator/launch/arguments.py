"""What `ancre launch`, `logs` and `stop` take on the command line. It imports nothing, as `ancre --help` waits."""

import argparse
from pathlib import Path

SYSTEMS = ("local", "ray", "slurm", "kuberay")


def launch_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write a study as a job of its own: a folder with the study, the code and Ray's token, none of which later "
        "edits change. With --submit, submit it too."
    )
    parser.epilog = (
        "HOME is a folder that all machines of the job share under this path. `ancre status`, `logs`, `stop` and "
        "`resume` work wherever it is seen."
    )
    add = parser.add_argument
    add("study", metavar="STUDY")
    add("--on", choices=SYSTEMS, required=True, help="this machine, a Ray cluster, SLURM, or KubeRay on Kubernetes")
    add("--submit", action="store_true", help="submit the job, with the system's own client")
    add("--out", type=Path, metavar="DIR", help="the job's folder (default: HOME/launches/NAME-ON-1, -2, ..)")
    add = parser.add_argument_group("machines (not with --on local)").add_argument
    add("--nodes", type=_count, metavar="N", help="machines (default: 1)")
    add("--cpus", type=_count, metavar="N", help="CPUs of each (default: for one trial)")
    add("--gpus", type=_count, metavar="N", help="GPUs of each (default: for one trial)")
    add("--python", help="Python there, with ancre's dependencies (default: slurm: this one; else: python)")
    add = parser.add_argument_group("ray").add_argument
    add("--address", metavar="URL", help="of the cluster's job server (default: http://127.0.0.1:8265)")
    add = parser.add_argument_group("slurm").add_argument
    add("--hours", type=_hours, metavar="H", help="time limit; shortly before it the job pauses, and queues again")
    add(
        "--sbatch",
        action="append",
        type=_option,
        metavar="OPTION",
        help="one more, as --sbatch=--partition=gpu",
    )
    add = parser.add_argument_group("kuberay").add_argument
    add("--image", help="container image with ancre's dependencies and ray[default]")
    add("--claim", help="PersistentVolumeClaim that is mounted at HOME, ReadWriteMany")
    add("--memory", type=_count, metavar="GIB", help="of each machine (default: no limit)")
    add("--namespace", help="of Kubernetes (default: kubectl's)")


def logs_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", metavar="TRIAL", help="a trial, or the start of its name; or a study: what its driver and uploader say")
    add("--follow", action="store_true", help="go on printing until it has ended")
    add("--lines", type=_count, default=20, metavar="N", help="of each file, the last ones (default: %(default)s)")


def stop_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Pause a study on whatever machine it runs, and wait until it has stopped."
    parser.add_argument("study", metavar="NAME", help="the study's name")
    parser.add_argument("--now", action="store_true", help="do not wait for running trials to report")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 10**6):
        raise argparse.ArgumentTypeError(f"should be a whole number of at least 1, got {text!r}")
    return int(text)


def _option(text: str) -> str:
    if not text.startswith("-") or not text.isprintable():
        raise argparse.ArgumentTypeError(f"should be an option of sbatch, as --sbatch=--partition=gpu, got {text!r}")
    return text


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = 0.0
    if not 0 < hours < 10**5:
        raise argparse.ArgumentTypeError(f"should be a number above 0, got {text!r}")
    return hours
