"""The command `ancre`: parses, calls, prints. Nothing heavy is imported until the command that needs it runs.

Exit codes: 0 done, 1 some trials failed or runs were not sent, 2 bad input (one line on stderr, nothing started), 3 Ray
is gone, 130 and 143 stopped by a signal.
"""

import argparse
import io
import os
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from analysis.store import default_home
from orchestrator.errors import InputError, RayLost
from orchestrator.launch.arguments import launch_arguments, logs_arguments, stop_arguments
from orchestrator.packages import check_one_place
from orchestrator.prepare.arguments import prepare_arguments
from orchestrator.questions import query_arguments, with_sort
from orchestrator.serve.arguments import serve_arguments, ui_arguments
from orchestrator.tables import FORMATS, print_rows

if TYPE_CHECKING:
    from orchestrator.study.spec import Study

Command = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files need be no UTF-8
    arguments = build_parser().parse_args(with_sort(sys.argv[1:] if argv is None else argv))
    run: Command = arguments.run
    try:
        check_one_place()
        code = run(arguments)
        sys.stdout.flush()
        return code
    except InputError as error:
        print(f"ancre: {error}", file=sys.stderr)
        return 2
    except RayLost as error:
        print(f"ancre: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `ancre query runs .. | head`: the reader has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


# ---- the commands, in the order of `ancre --help`


def kinds(arguments: argparse.Namespace) -> int:
    from orchestrator.catalogue import catalogue, shown

    rows = catalogue(arguments.family)
    print_rows(rows, arguments.format, shown(rows))
    return 0


def plan(arguments: argparse.Namespace) -> int:
    from orchestrator.study.plan import plan

    made = plan(_study(arguments, arguments.study, arguments.home), arguments.device)
    if arguments.probe or arguments.address:
        from orchestrator.sweep.probe import on_cluster

        made = on_cluster(made, arguments.address, arguments.probe, arguments.home)
    if arguments.format == "table":
        print(made.text())
    else:
        print_rows(made.rows(), arguments.format)
    return 0


def start(arguments: argparse.Namespace) -> int:
    from orchestrator.sweep.run import start

    # All are checked before the first one starts.
    studies = [_study(arguments, name, arguments.home) for name in arguments.study]
    return max(start(study, arguments.home, address=arguments.address).exit_code for study in studies)


def resume(arguments: argparse.Namespace) -> int:
    from orchestrator.sweep.run import resume

    return resume(arguments.study, arguments.home, address=arguments.address).exit_code


def launch(arguments: argparse.Namespace) -> int:
    from orchestrator.launch.command import launch

    return launch(arguments)


def stop(arguments: argparse.Namespace) -> int:
    from orchestrator.launch.command import stop

    return stop(arguments)


def logs(arguments: argparse.Namespace) -> int:
    from orchestrator.launch.command import logs

    return logs(arguments)


def status(arguments: argparse.Namespace) -> int:
    from orchestrator.record.status import shown, status

    rows = status(arguments.home, arguments.study)
    print_rows(rows, arguments.format, shown(rows))
    return 0


def sync(arguments: argparse.Namespace) -> int:
    from orchestrator.sweep.sync import sync

    rows = sync(arguments.home, arguments.study)
    print_rows(rows, arguments.format)
    return 1 if any(row["left"] or row["why"] for row in rows) else 0


def query(arguments: argparse.Namespace) -> int:
    from orchestrator.answers import query

    query(arguments)
    return 0


def report(arguments: argparse.Namespace) -> int:
    from orchestrator.answers import write_report

    written = write_report(arguments)
    print(*(textwrap.fill(said, 80) for said in written.verdicts), sep="\n", file=sys.stderr)
    print(written.path)
    return 0


def serve(arguments: argparse.Namespace) -> int:
    from orchestrator.serve.command import serve

    return serve(arguments)


def ui(arguments: argparse.Namespace) -> int:
    from orchestrator.serve.mlflow_ui import ui

    return ui(arguments)


def play(arguments: argparse.Namespace) -> int:
    from orchestrator.play import play

    print(play(arguments.run_id, arguments.home, arguments.out, arguments.seed))
    return 0


def sample(arguments: argparse.Namespace) -> int:
    from orchestrator.diffuse.draw import draw

    said = {name: getattr(arguments, name) for name in ("classes", "count", "steps", "cfg", "seed")}
    print(draw(arguments.run_id, arguments.home, arguments.out, **said))
    return 0


def export(arguments: argparse.Namespace) -> int:
    from orchestrator.answers import exported, writing

    text = exported(arguments)
    if arguments.out:
        with writing(arguments.out):
            arguments.out.write_text(text)
    else:
        print(text, end="")
    return 0


def doctor(arguments: argparse.Namespace) -> int:
    from orchestrator.doctor import examine

    rows = list(examine(arguments.home))
    print_rows(rows, arguments.format)
    return 0 if all(row["verdict"] == "ok" for row in rows) else 1


def prepare(arguments: argparse.Namespace) -> int:
    from orchestrator.prepare.command import command

    print(command(arguments))
    return 0


def _study(arguments: argparse.Namespace, name: str, home: Path | None = None) -> "Study":
    from orchestrator.study.spec import Study

    return Study.read(name, overrides=arguments.set, seeds=arguments.seeds, home=home)


# ---- the parser


class Parser(argparse.ArgumentParser):
    """argparse, with one line for an error instead of the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def build_parser() -> Parser:
    parser = Parser(
        prog="ancre",
        description="Find out how residual topology and depth should be chosen.",
        epilog="STUDY is a study file, the name of one that ships with ancre (`ancre kinds study` lists them), or, for "
        "start, the name of one that was started before.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)

    def add(name: str, run: Command, help: str) -> Parser:
        made: Parser = commands.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        made.set_defaults(run=run)
        return made

    one = add("kinds", kinds, "list what a study file can name: workloads, topologies, shipped studies, ..")
    one.add_argument("family", nargs="?", metavar="FAMILY", help="one family only, such as topology")
    _reads(one)

    one = add("plan", plan, "say what a study would run and what that costs, without starting anything")
    one.add_argument("study", metavar="STUDY")
    one.add_argument("--device", help="hours on this kind: cpu, a100, h100, h200 (default: by the study's resources)")
    one.add_argument("--probe", action="store_true", help="run a trial of each arm for some seconds, to see its speed")
    _reads(_runs(_changes(one)))

    one = add("start", start, "run what is not finished yet of one or more studies")
    one.add_argument("study", metavar="STUDY", nargs="+")
    _runs(_changes(one))

    one = add("resume", resume, "finish a study that was interrupted, from its checkpoints")
    one.add_argument("study", metavar="NAME", help="the study's name")
    _runs(one)

    one = add("launch", launch, "write a study as a job: on this machine, a Ray cluster, SLURM or Kubernetes")
    launch_arguments(_homed(_changes(one)))

    one = add("stop", stop, "pause a study, wherever it runs")
    stop_arguments(_homed(one))

    one = add("logs", logs, "print what a trial, or the driver of a study, said")
    logs_arguments(_homed(one))

    one = add("status", status, "say how far studies are, from the home folder alone")
    one.add_argument("study", metavar="NAME", nargs="?", help="one study, trial by trial")
    _reads(_homed(one))

    one = add("sync", sync, "send MLflow what an outage kept back; exit code 1 where something is left")
    one.add_argument("study", metavar="NAME", nargs="?", help="one study (default: all)")
    _reads(_homed(one))

    one = add("query", query, "ask MLflow: best configurations, runs, what is missing, what matters, topologies, ..")
    query_arguments(one)
    _homed(one)

    one = add("report", report, "write one HTML file, readable offline, on one or more studies")
    one.add_argument("study", metavar="STUDY", nargs="+", help="names of studies")
    one.add_argument("--out", type=Path, help="the file (default: HOME/reports/NAMES.html)")
    _homed(one)

    one = add("serve", serve, "follow the studies of a home in a browser, while they run")
    serve_arguments(_homed(one))

    one = add("ui", ui, "start MLflow's own pages on this home's runs")
    ui_arguments(_homed(one))

    one = add("play", play, "write a file that shows one evaluation episode of a trial of contrastive RL")
    one.add_argument("run_id", metavar="RUN", help="a trial, or its MLflow run; the start of its id is enough")
    one.add_argument("--out", type=Path, help="an .html file, or a .png from above (default: HOME/plays/TRIAL.html)")
    one.add_argument("--seed", type=_seed, default=0, help="of the episode's start and goal (default: %(default)s)")
    _homed(one)

    one = add("sample", sample, "draw images of chosen classes with a trained diffusion transformer")
    one.add_argument("run_id", metavar="RUN", help="a trial, or its MLflow run; the start of its id is enough")
    one.add_argument("--classes", type=_classes, metavar="N,N,..", help="by number (default: the first 10)")
    one.add_argument("--count", type=_whole(1, 1000), default=8, help="images of each class (default: %(default)s)")
    one.add_argument("--steps", type=_whole(1, 1000), help="of sampling (default: as the trial was evaluated)")
    one.add_argument("--cfg", type=_scale, help="scale of guidance, 1 for none (default: as the trial was evaluated)")
    one.add_argument("--seed", type=_seed, default=0, help="of each class's first image (default: %(default)s)")
    one.add_argument("--out", type=Path, help="a .png file (default: HOME/samples/TRIAL.png)")
    _homed(one)

    one = add("export", export, "print a runnable study file of one configuration")
    one.add_argument("cell", metavar="CELL", help="a cell as `ancre query` prints it; the start of its name is enough")
    one.add_argument("--study", help="look in this study only")
    one.add_argument("--out", type=Path, help="write to this file instead")
    _homed(one)

    said = "make text or pictures ready for training"
    group = commands.add_parser("data", help=said, description=f"{said.capitalize()}.")
    inner = group.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    one = inner.add_parser("prepare", help="tokenize text, or encode pictures, once, into shards that trials share")
    one.set_defaults(run=prepare)
    prepare_arguments(one)

    one = add("doctor", doctor, "check what is installed, which devices there are, and the home folder")
    _reads(_homed(one))
    return parser


def _whole(least: int, most: int) -> Callable[[str], int]:
    """What reads a whole number in this range."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"should be a whole number from {least} to {most}, got {text!r}")
        return int(text)

    return read


_seed = _whole(0, 2**31 - 1)


def _classes(text: str) -> list[int]:
    if not all(part.isascii() and part.isdecimal() for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"should be numbers of classes such as 3,7, got {text!r}")
    return [int(part) for part in text.split(",")]


def _scale(text: str) -> float:
    try:
        scale = float(text)
    except ValueError:
        scale = -1.0
    if not 0 <= scale <= 1000:
        raise argparse.ArgumentTypeError(f"should be a number from 0 to 1000, got {text!r}")
    return scale


def _reads(parser: Parser) -> Parser:
    parser.add_argument("--format", choices=FORMATS, default="table", help="default: table")
    return parser


def _homed(parser: Parser) -> Parser:
    parser.add_argument(
        "--home", type=Path, default=default_home(), help="where studies are kept (default: %(default)s)"
    )
    return parser


def _changes(parser: Parser) -> Parser:
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override the study file")
    parser.add_argument("--seeds", help="seeds instead of the file's, such as 0..4 or 0,3")
    return parser


def _runs(parser: Parser) -> Parser:
    parser.add_argument("--address", help="a Ray cluster's address (default: Ray on this machine alone)")
    return _homed(parser)
