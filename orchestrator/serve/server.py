"""The HTTP server: read-only, for this machine's own browsers unless told otherwise.

A page from elsewhere must not read it through a name that it points here (DNS rebinding), so a request has to name this
machine. No answer runs a script but ours, loads anything from elsewhere, or can be framed.
"""

from __future__ import annotations

import ipaddress
import platform
import sys
import traceback
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from typing import Any
from urllib.parse import parse_qs, urlsplit

from orchestrator.serve.site import Site

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "style-src-attr 'unsafe-inline'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
METHODS = ("GET", "HEAD")
SILENT = 30.0  # seconds after which a connection without a request is closed
TEXT = "text/plain; charset=utf-8"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Server(ThreadingHTTPServer):
    """Serves one home on `host` and `port`; port 0 takes any that is free."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, site: Site, host: str, port: int) -> None:
        self.site = site
        self._host = host
        self.address_family = AF_INET6 if ":" in host else AF_INET
        super().__init__((host, port), Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no fault of ours."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        shown = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{shown}:{self.server_port}/"

    def is_named(self, host: str) -> bool:
        """Whether a Host header names this machine. An address of numbers cannot be pointed elsewhere."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if is_loopback(name):
            return True
        return not is_loopback(self._host) and (
            _is_address(name) or name in (self._host.lower(), platform.node().lower())
        )


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Server
    protocol_version = "HTTP/1.1"
    timeout = SILENT
    server_version, sys_version = "ancre", ""
    error_content_type = TEXT
    error_message_format = "%(code)d %(message)s\n"

    def parse_request(self) -> bool:
        """Refuses whatever is not a question of a page of ours."""
        if not super().parse_request():
            return False
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or not self.server.is_named(hosts[0]):
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "this server is another: its address is its own")
        elif self.command not in METHODS:
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "this server is read-only")
        else:
            return True
        return False

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        seen = parse_qs(address.query).get("seen", [""])[0]
        try:
            answer = self.server.site.answer(address.path, seen)
        except Exception:  # our bug: said here, not to whoever asked
            traceback.print_exc(file=sys.stderr)
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "see the output of ancre serve")
            return
        if answer is None:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")
        else:
            self._send(HTTPStatus.OK, answer.kind, answer.body)

    do_HEAD = do_GET  # noqa: N815 - the library's name; `_send` leaves the body out

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self.close_connection = True  # a body may follow
        self._send(status, TEXT, f"{status.value} {status.phrase}: {why}\n".encode())

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        headers = {**HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = ", ".join(METHODS)
        if self.close_connection:
            headers["Connection"] = "close"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """A page asks every second: nothing is printed."""
