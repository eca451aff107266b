"""Command lines for podman and docker, as data."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairway.engines.local.provision.container import ContainerCommand, container_for
from fairway.errors import RefusedError
from fairway.spec.job import ContainerUse, RuntimeEnvironment

ALWAYS = RuntimeEnvironment(image="pytorch/pytorch:2.9", container=ContainerUse.ALWAYS)


def program(folder: Path, name: str) -> str:
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_no_container_unless_asked_for(tmp_path: Path) -> None:
    program(tmp_path, "docker")
    assert container_for(RuntimeEnvironment(image="x"), [], [], str(tmp_path), 1, 1) is None


def test_podman_is_preferred(tmp_path: Path) -> None:
    program(tmp_path, "docker")
    podman = program(tmp_path, "podman")
    wrap = container_for(ALWAYS, ["/home/jobs/x"], ["/inject"], str(tmp_path), 1000, 1000)
    assert wrap == ContainerCommand(podman, "pytorch/pytorch:2.9", ("/home/jobs/x",), ("/inject",), 1000, 1000)


@pytest.mark.parametrize(
    ("environment", "mounts", "words"),
    [
        (ALWAYS, ["/a"], "neither podman nor docker"),
        (RuntimeEnvironment(container=ContainerUse.ALWAYS), ["/a"], "environment.image is empty"),
        (RuntimeEnvironment(container=ContainerUse.ALWAYS, image="--privileged"), ["/a"], "is not an image name"),
    ],
)
def test_what_cannot_be_run_is_refused_in_words(
    tmp_path: Path, environment: RuntimeEnvironment, mounts: list[str], words: str
) -> None:
    with pytest.raises(RefusedError, match=words):
        container_for(environment, mounts, [], str(tmp_path), 1, 1)


def test_a_folder_that_docker_would_misread_is_refused(tmp_path: Path) -> None:
    program(tmp_path, "docker")
    with pytest.raises(RefusedError, match="colon"):
        container_for(ALWAYS, ["/a:b"], [], str(tmp_path), 1, 1)


def test_the_command_line_of_docker() -> None:
    wrap = ContainerCommand("/usr/bin/docker", "image", ("/job", "/work"), ("/inject",), 1000, 100)
    env = {"RANK": "0", "PATH": "/venv/bin", "HF_TOKEN": "hunter2"}
    argv = wrap.command(["python", "train.py"], env, name="fairway-x", work_dir="/work", devices=["GPU-1", "GPU-2"])
    assert argv == (
        *("/usr/bin/docker", "run", "--rm", "--init", "--name", "fairway-x", "--network", "host", "--ipc", "host"),
        *("--user", "1000:100"),
        *("--volume", "/job:/job:rw", "--volume", "/work:/work:rw", "--volume", "/inject:/inject:ro"),
        *("--gpus", '"device=GPU-1,GPU-2"'),
        *("--env", "HF_TOKEN", "--env", "RANK"),
        *("--workdir", "/work", "image", "python", "train.py"),
    )
    assert "hunter2" not in " ".join(argv)


def test_what_differs_with_podman() -> None:
    argv = ContainerCommand("/usr/bin/podman", "image", (), (), 1000, 100).command(
        ["x"], {}, name="n", work_dir="/", devices=["GPU-1"]
    )
    assert argv[argv.index("--userns") : argv.index("--userns") + 2] == ("--userns", "keep-id")
    assert "nvidia.com/gpu=GPU-1" in argv
    assert "--user" not in argv
    assert ContainerCommand("/usr/bin/podman", "image", ()).removal("n") == ("/usr/bin/podman", "rm", "--force", "n")


def test_a_container_reads_what_is_piped_in_only_when_asked() -> None:
    wrap = ContainerCommand("/usr/bin/docker", "image", ())
    assert "--interactive" in wrap.command(["x"], {}, name="n", work_dir="/", reads=True)
    assert "--interactive" not in wrap.command(["x"], {}, name="n", work_dir="/")
