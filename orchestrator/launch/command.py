"""What `ancre launch`, `logs` and `stop` do, from their parsed arguments."""

import argparse

from orchestrator.launch.launch import launch as launch_study
from orchestrator.launch.logs import logs as read_logs
from orchestrator.launch.stop import stop as stop_study
from orchestrator.study.spec import Study


def launch(arguments: argparse.Namespace) -> int:
    study = Study.read(arguments.study, overrides=arguments.set, seeds=arguments.seeds, home=arguments.home)
    print(*launch_study(study, arguments), sep="\n")
    return 0


def logs(arguments: argparse.Namespace) -> int:
    for line in read_logs(arguments.home, arguments.name, arguments.lines, arguments.follow):
        print(line, flush=arguments.follow)
    return 0


def stop(arguments: argparse.Namespace) -> int:
    print(stop_study(arguments.home, arguments.study, arguments.now))
    return 0
