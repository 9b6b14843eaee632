"""What keeps a stranger's file, a neighbour on the network and a reader of logs out; a test for each."""

import ast
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from analysis.store import redacted
from orchestrator.errors import InputError
from orchestrator.study.spec import Study
from orchestrator.sweep import token

ROOT = Path(__file__).parent.parent
SOURCES = [
    file
    for name in ("orchestrator", "models", "envs", "search_spaces", "analysis")
    for file in (ROOT / name).rglob("*.py")
]
NEVER = {
    "eval",
    "exec",
    "os.system",
    "os.popen",
    "pickle.load",
    "pickle.loads",
    "yaml.load",
    "yaml.unsafe_load",
    "shelve.open",
}


def calls():
    """Every call in the packages: file, its dotted name, its keywords."""
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                yield file, ast.unparse(node.func), {word.arg: ast.unparse(word.value) for word in node.keywords}


def test_nothing_runs_text_or_reads_pickles_or_asks_a_shell():
    found = [(str(file), name) for file, name, words in calls() if name in NEVER or words.get("shell") == "True"]
    assert not found


def test_weights_are_read_as_weights_alone():
    reads = [(file.name, words.get("weights_only")) for file, name, words in calls() if name == "torch.load"]
    assert reads and all(only == "True" for _, only in reads), reads


def test_libraries_are_no_older_than_their_last_hole():
    needed = map(Requirement, tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
    specifiers = {one.name: one.specifier for one in needed}
    assert not specifiers["mlflow"].contains("3.9") and not specifiers["torch"].contains("2.9")


@pytest.mark.parametrize(
    "kind",
    ["__import__('os').system('touch harm')", "os", "os.system", "antigravity.x", "../../harm", "subprocess.run"],
)
def test_a_study_file_that_tries_to_run_code(kind, tmp_path, monkeypatch):
    """A dotted kind names a module of the user's own with a `Spec`; anything else is refused in one line."""
    monkeypatch.chdir(tmp_path)
    for changed in ({"workload": kind}, {"workload": "lnn", "trial": {"topology": {"kind": kind}}}):
        with pytest.raises(InputError) as refused:
            Study(name="mine", **changed)
        assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text",
    [
        "https://me:hunter2@tracking.example/api",
        "postgresql://me:hunter2@db/mlflow",
        "https://tracking.example/?token=hunter2&page=1",
        "aws_secret_access_key=hunter2",
        "MLFLOW_TRACKING_PASSWORD=hunter2",
    ],
)
def test_secrets_are_redacted(text):
    assert "hunter2" not in redacted(text)


def test_rays_token_is_for_its_owners_eyes_only(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in token.OWN:
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / ".ray" / "auth_token"
    token.keep_private()
    first = file.read_text()
    assert len(first) == 64 and stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o644)  # as Ray leaves it
    token.keep_private()
    assert file.read_text() == first and stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["auth_token"]


def listening(pid: int) -> set[str]:
    """The addresses, as the kernel writes them, at which a process of this machine listens."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        if stat.S_ISSOCK(link.stat().st_mode):
            inodes.add(str(link.stat().st_ino))
    lines = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    ]
    return {fields[1].partition(":")[0] for fields in lines if fields[3] == "0A" and fields[9] in inodes}


def test_live_pages_listen_on_loopback_alone(tmp_path):
    command = [sys.executable, "-m", "orchestrator", "serve", "--port", "0", "--home", str(tmp_path)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert server.stdout.readline().startswith("http://127.0.0.1:")
        assert listening(server.pid) == {"0100007F"}
    finally:
        server.kill()
        server.communicate()
