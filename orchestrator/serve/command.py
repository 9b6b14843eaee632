"""`ancre serve` and `ancre ui`, from what was asked on the command line."""

from __future__ import annotations

import errno
import os
import sys
from argparse import Namespace

from orchestrator.errors import InputError
from orchestrator.record.uploader import NICE
from orchestrator.serve.server import Server, is_loopback
from orchestrator.serve.site import Site


def serve(asked: Namespace) -> int:
    """Serve until Ctrl-C.

    Raises:
        InputError: the address cannot be had.
    """
    server = opened(asked)
    os.nice(NICE)  # a sweep on this machine goes first
    with server:
        if not is_loopback(asked.host):
            print(f"open to whoever reaches {asked.host}: there is no password", file=sys.stderr)
        print(f"{server.url} follows the studies in {asked.home}; Ctrl-C ends it", flush=True)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            return 0
    return 0


def opened(asked: Namespace) -> Server:
    """A server that has its port and does not answer yet."""
    try:
        if asked.home.exists() and not asked.home.is_dir():
            raise InputError(f"--home {asked.home}: is a file; give the folder where studies are kept")
        return Server(Site(asked.home), asked.host, asked.port)
    except OSError as error:
        raise refused(asked.host, asked.port, error) from error


def refused(host: str, port: int, error: OSError) -> InputError:
    """Why an address cannot be listened on."""
    if error.errno == errno.EADDRINUSE:
        return InputError(f"--port {port}: is taken on {host}; pass another, or 0 for any that is free")
    if error.errno == errno.EACCES:
        return InputError(f"--port {port}: may not be taken by this user; pass one from 1024 on")
    return InputError(f"--host {host}: cannot be listened on: {error.strerror}")
