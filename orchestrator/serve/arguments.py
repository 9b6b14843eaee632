"""What `ancre serve` and `ancre ui` take on the command line. It imports nothing, as `ancre --help` waits for it."""

import argparse

LOOPBACK = "127.0.0.1"
SERVE_PORT = 8484
UI_PORT = 5000


def serve_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them to the parser of `ancre serve`."""
    parser.add_argument(
        "--host",
        default=LOOPBACK,
        help="the address to listen on; others than this machine's own are open to the network",
    )
    _port(parser, SERVE_PORT)


def ui_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them to the parser of `ancre ui`."""
    _port(parser, UI_PORT)


def _port(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument(
        "--port", type=_number, default=default, metavar="N", help="default: %(default)s; 0 takes any that is free"
    )


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) < 65536):
        raise argparse.ArgumentTypeError(f"should be a port from 0 to 65535, got {text!r}")
    return int(text)
