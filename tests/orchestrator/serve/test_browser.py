"""The page in a real browser, where there is one: it loads, it follows the ledger, and its console stays empty."""

import re
import shutil
import subprocess
import threading

import pytest

from orchestrator.serve.site import Site

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--virtual-time-budget=30000",
]

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")


@pytest.fixture
def browse(tmp_path):
    """What a page holds after 30 s of its own time, which passes as fast as answers come; and its console."""

    def load(url: str) -> tuple[str, list[str]]:
        command = [str(BROWSER), *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        return done.stdout, [line for line in done.stderr.splitlines() if ":CONSOLE" in line]

    return load


def test_a_page_follows_the_ledger_while_it_is_open(client, written, browse, monkeypatch):
    written.plan("c0", **{"optim.lr": 0.1})
    written.run("c0-s0")
    written.rows("c0-s0", {10: 9.0, 20: 8.0})
    answer = Site.answer
    asked = []
    drawn = threading.Event()

    def answering(site, path, seen):
        """The trial ends between the first look of the open page and the second."""
        asked.append(path)
        if asked.count("/studies/mine/state.json") == 2:
            written.end("c0-s0", 8.0)
            written.run("c0-s1")
            written.rows("c0-s1", {10: 9.5, 20: 8.5})
        made = answer(site, path, seen)
        if made and b"Learning curves" in made.body:
            drawn.set()
        if asked.count("/studies/mine/state.json") > 5:
            drawn.wait(1.0)  # the page's own time stands still meanwhile
        return made

    monkeypatch.setattr(Site, "answer", answering)
    page, console = browse(client.url + "studies/mine")
    assert console == []
    assert asked[0] == "/studies/mine" and asked.count("/studies/mine") == 1
    assert asked.count("/studies/mine/state.json") > 3
    assert "1 of 2</b><span>trials ended" in page and "c0-s1" in page
    assert re.search(r"<section data-part=.leaders.*?incomplete", page)
    assert "Learning curves of the best" in page and page.count("<svg") == 2
    assert '<p id="lost" role="status" hidden="">' in page


def test_a_script_in_free_text_runs_nowhere(client, written, browse):
    """Were it taken for HTML, the policy would still refuse to run it, and the console would say so."""
    evil = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
    written.plan("c0", arm=evil, **{evil: evil})
    written.run("c0-s0")
    page, console = browse(client.url + "studies/mine")
    assert console == []
    assert "<title>mine · ancre</title>" in page and "&lt;script&gt;" in page


def test_where_the_server_is_gone_the_page_says_so(client, written, browse, monkeypatch):
    answer = Site.answer

    def failing(site, path, seen):
        if path.endswith("state.json"):
            raise ConnectionError("gone")
        return answer(site, path, seen)

    monkeypatch.setattr(Site, "answer", failing)
    page, _ = browse(client.url + "studies/mine")
    assert '<p id="lost" role="status">' in page
