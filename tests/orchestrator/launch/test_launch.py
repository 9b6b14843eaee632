"""A job holds what it runs, says nothing that is secret, and each template is one that its system takes."""

import base64
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path

import jsonschema
import pytest
import yaml

from orchestrator.launch.launch import SYSTEMS
from orchestrator.packages import PACKAGES
from orchestrator.study.spec import Study
from tests.orchestrator.launch.conftest import NAME, ODD

KUBERAY = ("--image", "registry/ancre:1", "--claim", "shared")
RAY_JOB = {  # of KubeRay's ray.io/v1 RayJob (v1.6), the fields that are used; any other would be refused as unknown
    "spec": {
        "entrypoint": "string",
        "shutdownAfterJobFinishes": "boolean",
        "backoffLimit": "integer",
        "rayClusterSpec": {
            "rayVersion": "string",
            "authOptions": {"mode": "string"},
            "headGroupSpec": {"rayStartParams": "object", "template": "object"},
            "workerGroupSpecs": [
                {
                    **dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), "integer"),
                    "groupName": "string",
                    "rayStartParams": "object",
                    "template": "object",
                }
            ],
        },
    },
    **dict.fromkeys(("apiVersion", "kind"), "string"),
    "metadata": {"name": "string"},
}


def schema(fields) -> dict:
    """A JSON schema that knows these fields, all of them needed, and no others."""
    if isinstance(fields, str):
        return {"type": fields}
    if isinstance(fields, list):
        return {"type": "array", "items": schema(fields[0])}
    properties = {name: schema(kind) for name, kind in fields.items()}
    return {"type": "object", "properties": properties, "required": list(fields), "additionalProperties": False}


def job_of(said: str) -> Path:
    return Path(re.search(r"^job: (.*)$", said, re.MULTILINE)[1])


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_job_keeps_the_study_and_the_code_as_they_are_now(system, launch, study_file):
    said = launch(study_file, "--on", system, "--set", "train.steps=3", *(KUBERAY if system == "kuberay" else ()))
    job = job_of(said)
    assert job.name == f"{NAME}-{system}-1" and ODD in str(job)
    wanted = Study.read(study_file, overrides=["train.steps=3"])
    study_file.write_text("")
    assert Study.read(job / "job" / "study.toml") == wanted
    assert {path.name for path in (job / "job" / "code").iterdir()} == {*PACKAGES, "commit"}
    environment = {**os.environ, "PYTHONPATH": str(job / "job" / "code"), "PYTHONSAFEPATH": "1"}
    code = "from orchestrator.record import environment as e; print(e.__file__, e.commit())"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(job / "job" / "code"))
    assert done.stdout.split()[-1].removesuffix("-dirty") == commit()
    assert "4 trials" in said and "submit with: " in said


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, check=True)
    return done.stdout.decode().strip()


def test_relative_paths_are_found_from_the_job(launch, home, tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "one.txt").write_text("a line\n")
    study = llm(tmp_path / "text.toml", "corpus/one.txt")
    job = job_of(launch("text.toml", "--on", "slurm"))
    assert Study.read(job / "job" / "study.toml") == study  # the same trials as without a job
    assert (job / "here" / "corpus" / "one.txt").read_text() == "a line\n"


def llm(file: Path, data: str) -> Study:
    trial = {
        "model": {"width": 16, "ffn_width": 24, "depth": 2, "heads": 2, "vocab_size": 280},
        "topology": {"kind": "cascaded"},
        "optim": {"kind": "adamw", "lr": 0.01},
        "data": {"kind": "files", "path": data},
        "text": {"sequence": 16},
        "train": {"steps": 1, "batch": 8},
    }
    study = Study(name="text", workload="llm", trial=trial)
    file.write_text(study.to_toml())
    return study


def test_each_job_has_a_folder_of_its_own(launch, study_file, tmp_path):
    names = [job_of(launch(study_file, "--on", "local")).name for _ in range(2)]
    assert names == [f"{NAME}-local-1", f"{NAME}-local-2"]
    assert job_of(launch(study_file, "--on", "local", "--out", "mine")) == tmp_path / "mine"
    assert "--out mine: should be a new or empty folder" in launch(study_file, "--on", "local", "--out", "mine", code=2)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--on", "local", "--nodes", "2"), "--nodes: is an option of --on ray, not of --on local"),
        (("--on", "slurm", "--image", "x"), "--image: is an option of --on kuberay, not of --on slurm"),
        (("--on", "kuberay", "--image", "x"), "--on kuberay: needs --claim"),
        (("--on", "slurm", "--sbatch=-p x\nrm"), "--sbatch: should be an option of sbatch"),
        (("--on", "slurm", "--cpus", "2", "--set", "resources.cpus=4"), "a trial takes 1 x (4 CPUs"),
        (("--on", "slurm", "--nodes", "3", "--set", "resources.workers=7", "--cpus", "2"), "a trial takes 7 x (1 CPUs"),
        (("--on", "slurm", "--submit"), "--on slurm --submit: needs sbatch, of SLURM: run this on a machine of"),
        (("--on", "kuberay", *KUBERAY, "--submit"), "--on kuberay --submit: needs kubectl: install it"),
        (("--on", "ray", "--home", "not-here"), "not-here: is not on this machine; say with --out DIR"),
    ],
)
def test_what_cannot_be_is_one_line(launch, study_file, home, monkeypatch, words, line):
    monkeypatch.setenv("PATH", str(home))
    by_parser = "--home" in words or "--sbatch" in words[-1]
    said = refused(study_file, words) if by_parser else launch(study_file, *words, code=2)
    assert said.startswith("ancre") and said.count("\n") == 1 and line in said
    assert not list(home.glob("launches/*/*"))


def refused(study_file, words) -> str:
    command = [sys.executable, "-m", "orchestrator", "launch", study_file, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    return done.stderr


def test_a_login_of_the_tracking_store_is_written_nowhere(launch, study_file, home, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://user:hunter2@tracking.example")
    said = launch(study_file, "--on", "ray", code=2)
    assert "MLFLOW_TRACKING_URI https://***@tracking.example: it holds a secret" in said and "hunter2" not in said
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://tracking.example")
    assert "MLFLOW_TRACKING_URI=https://tracking.example" in launch(study_file, "--on", "ray")


@pytest.mark.parametrize("gpus", [0, 4])
def test_the_batch_script(launch, study_file, gpus):
    words = ("--nodes", 3, "--cpus", 8, "--hours", 1.5, "--sbatch=--partition=gpu", *(("--gpus", gpus) if gpus else ()))
    said = launch(study_file, "--on", "slurm", *words)
    job = job_of(said)
    script = job / "job.sbatch"
    subprocess.run(["bash", "-n", script], check=True)
    directives = re.findall(r"^#SBATCH (.*)$", script.read_text(), re.MULTILINE)
    assert {"--nodes=3", "--cpus-per-task=8", "--time=90", "--requeue", "--partition=gpu"} <= set(directives)
    assert (f"--gpus-per-node={gpus}" in directives) == bool(gpus)
    assert any(directive.startswith("--signal=B:USR1@") for directive in directives)
    assert "ray stop" not in script.read_text() and "RAY_AUTH_MODE=token" in script.read_text()
    assert shlex.split(said.partition("submit with: ")[2]) == ["sbatch", f"--chdir={job}", str(script)]
    assert f"{NAME}: 4 trials, 4 at a time" in said


def test_the_cluster_of_ray_up(launch, study_file, home):
    from ray.autoscaler._private import util

    job = job_of(launch(study_file, "--on", "ray", "--nodes", 3, "--cpus", 4, "--python", "/opt/an env/bin/python"))
    text = (job / "cluster.yaml").read_text()
    made = yaml.safe_load(text)
    util.validate_config(util.prepare_config(made | {"provider": made["provider"] | {"head_ip": "10.0.0.1"}}))
    with (Path(util.__file__).parents[1] / "ray-schema.json").open() as file:
        jsonschema.validate(made, json.load(file))
    assert made["file_mounts"] == {"~/.ancre-token": str(job / "token")}
    assert len(made["provider"]["worker_ips"]) == 2
    for commands in ("head_start_ray_commands", "worker_start_ray_commands"):
        (command,) = made[commands]
        assert "RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=~/.ancre-token" in command
        subprocess.run(["bash", "-n", "-c", command], check=True)
    assert shlex.split(made["initialization_commands"][0]) == ["test", "-d", str(home)]
    assert "ray stop" not in text and "0.0.0.0" not in text


def test_the_ray_job_of_kuberay(launch, study_file, home, tmp_path):
    said = launch(study_file, "--on", "kuberay", *KUBERAY, "--nodes", 3, "--gpus", 1, "--memory", 16)
    job = job_of(said)
    content, made = yaml.safe_load_all((job / "rayjob.yaml").read_text())
    jsonschema.validate(made, schema(RAY_JOB))
    cluster = made["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}  # KubeRay keeps the token in a Secret
    assert cluster["workerGroupSpecs"][0]["replicas"] == 2
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        (container,) = group["template"]["spec"]["containers"]
        assert container["resources"]["limits"] == {"cpu": 1, "nvidia.com/gpu": 1, "memory": "16Gi"}
        assert {mount["mountPath"] for mount in container["volumeMounts"]} == {str(home), "/ancre"}
        claims = [volume.get("persistentVolumeClaim") for volume in group["template"]["spec"]["volumes"]]
        assert {"claimName": "shared"} in claims
        assert {"configMap": {"name": content["metadata"]["name"]}} in [
            {key: value for key, value in volume.items() if key != "name"}
            for volume in group["template"]["spec"]["volumes"]
        ]
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,45}[a-z0-9])", made["metadata"]["name"])
    assert Study.parse(content["data"]["study.toml"]) == Study.read(study_file)
    command = shlex.split(said.partition("submit with: ")[2])
    assert command[:3] == ["kubectl", "apply", "--server-side"]
    check_script(content, home, tmp_path)


def check_script(content, home, tmp_path):
    """The script of the ConfigMap unpacks the code and starts the study; here a stand-in takes Python's place."""
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(content["binaryData"]["code.tar.xz"]))) as archive:
        assert {"./orchestrator/cli.py", "./models/stack.py"} <= set(archive.getnames())
    stand_in = tmp_path / "bin" / "python"
    stand_in.parent.mkdir()
    stand_in.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
    stand_in.chmod(0o755)
    environment = {**os.environ, "PATH": f"{stand_in.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", content["data"]["run.sh"]], env=environment, capture_output=True, text=True, check=True
    )
    words = done.stdout.splitlines()
    assert words[:4] == ["-m", "tarfile", "-e", "/ancre/code.tar.xz"]
    start = ["-m", "orchestrator", "start", "/ancre/study.toml"]
    assert words[5:] == [*start, "--home", str(home), "--address", "auto"]


def test_a_job_on_this_machine_runs_to_its_end(home, launch, study_file, tmp_path):
    """With no terminal, from a folder that has another package of ours than the job."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "__init__.py").write_text("raise RuntimeError('not these')")
    said = launch(study_file, "--on", "local", "--submit")
    os.waitpid(int(re.search(r"process (\d+)", said)[1]), 0)
    assert "4 finished; 4 ran now" in (job_of(said) / "output.log").read_text()
    study = home / "studies" / NAME
    assert "4 finished; 4 ran now" in (study / "driver.log").read_text() and not (study / "lock").read_text()


def test_a_job_on_this_machine_that_cannot_start_says_why(home, launch, tmp_path):
    llm(tmp_path / "text.toml", "/no/such/text")
    assert "/no/such/text" in launch("text.toml", "--on", "local", "--submit", code=2)
