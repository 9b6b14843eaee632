"""What the server answers, to whom, and what it never does."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli import main
from orchestrator.serve.server import Server, is_loopback
from orchestrator.serve.site import Site


def test_pages_load_and_name_nothing_from_elsewhere(client, written):
    written.plan("c0")
    for path in ("/", "/studies/mine", "/live.js", "/live.css", "/state.json", "/studies/mine/state.json"):
        answer = client.ask(path)
        assert answer.status == 200, path
        assert "://" not in answer.text.replace(client.url, ""), path
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert answer.headers["X-Content-Type-Options"] == "nosniff" and answer.headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "NONSENSE"])
def test_it_is_read_only(client, written, method):
    answer = client.ask("/", method)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


def test_a_head_has_what_a_get_has_but_the_body(client, written):
    head, get = client.ask("/live.js", "HEAD"), client.ask("/live.js")
    assert (head.status, head.text) == (200, "")
    assert head.headers["Content-Length"] == get.headers["Content-Length"] == str(len(get.text.encode()))


@pytest.mark.parametrize(
    "path",
    [
        "/studies/../../secret",
        "/studies/..%2f..%2fsecret",
        "/studies/%2e%2e/state.json",
        "/../secret",
        "//secret",
        "/studies/mine/../mine",
        "/studies/mine%00",
        "/studies/mine/ledger.jsonl",
        "/studies/min",
        "/studies/",
        "/live.py",
    ],
)
def test_only_the_names_of_studies_lead_anywhere(client, written, tmp_path, path):
    (tmp_path / "secret").write_text("never shown")
    answer = client.ask(path)
    assert answer.status == 404 and "never shown" not in answer.text


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:8484", "LOCALHOST:8484", "127.9.9.9"])
def test_loopback_names_are_answered(client, written, host):
    assert client.ask("/", Host=host).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "10.0.0.1", "evil.example:8484", "", "[", "localhost@evil.example"],
)
def test_a_name_that_was_pointed_here_is_refused(client, written, host):
    answer = client.ask("/", Host=host)
    assert answer.status == 421 and "mine" not in answer.text


def test_a_request_without_or_with_two_hosts_is_refused(client):
    for hosts in (b"", b"Host: localhost\r\nHost: evil.example\r\n"):
        with socket.create_connection(("127.0.0.1", client.server.server_port), timeout=10) as one:
            one.sendall(b"GET / HTTP/1.1\r\n" + hosts + b"\r\n")
            assert one.recv(100).startswith(b"HTTP/1.1 421")


def test_where_another_host_was_asked_for_addresses_and_that_name_are_answered(tmp_path):
    with Server(Site(tmp_path), "0.0.0.0", 0) as server:
        assert all(map(server.is_named, ["localhost:80", "10.0.0.1:8484", "[fe80::1]"]))
        assert not any(map(server.is_named, ["evil.example", "", "10.0.0.1.evil.example"]))


@given(st.text(max_size=40))
def test_no_host_header_breaks_the_check(host):
    server = Server.__new__(Server)
    server._host = "127.0.0.1"
    assert server.is_named(host) in (True, False)


@pytest.mark.parametrize(("host", "own"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False)])
def test_what_is_open_to_the_network(host, own):
    assert is_loopback(host) is own


def test_a_bug_is_told_here_and_not_to_whoever_asks(client, written, monkeypatch, capsys):
    monkeypatch.setattr(Site, "answer", lambda *_: 1 / 0)
    answer = client.ask("/")
    assert answer.status == 500 and "Zero" not in answer.text
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["serve", "ui"])
def test_a_port_that_is_taken_is_one_line(command, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "mlflow.db").touch()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main([command, "--home", str(tmp_path), "--port", str(port)]) == 2
    said = capsys.readouterr().err
    assert said == f"ancre: --port {port}: is taken on 127.0.0.1; pass another, or 0 for any that is free\n"


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_an_address_that_is_not_this_machines_is_one_line(host, tmp_path, capsys):
    assert main(["serve", "--home", str(tmp_path), "--port", "0", "--host", host]) == 2
    assert capsys.readouterr().err.startswith(f"ancre: --host {host}: cannot be listened on: ")


def test_a_home_that_is_a_file_is_one_line(tmp_path, capsys):
    (tmp_path / "home").touch()
    assert main(["serve", "--home", str(tmp_path / "home"), "--port", "0"]) == 2
    assert "is a file; give the folder where studies are kept" in capsys.readouterr().err
