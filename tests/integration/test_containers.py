"""Gangs in real containers, where podman is installed and can run one: they start, get their ranks, stop, and leave nothing."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from collections.abc import Iterator

import pytest
from daemon_home import DaemonHome

IMAGE = "localhost/fairway-test:1"


def _tiny_system(busybox: str) -> bytes:
    """Return a file system in which one binary provides all programs."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        for name in ("bin", "tmp", "etc"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
        archive.add(busybox, "bin/busybox")
        for name in ("sh", "echo", "sleep"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
    return whole.getvalue()


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    busybox = shutil.which("busybox")
    if shutil.which("podman") is None or busybox is None:
        pytest.skip("no podman, or no static busybox to make an image of")
    made = subprocess.run(
        ["podman", "import", "-", IMAGE], input=_tiny_system(busybox), capture_output=True, timeout=60, check=False
    )
    tried = subprocess.run(["podman", "run", "--rm", IMAGE, "/bin/echo", "well"], capture_output=True, timeout=60, check=False)
    if made.returncode or tried.stdout != b"well\n":
        pytest.skip(f"podman cannot run a container here: {(made.stderr + tried.stderr).decode(errors='replace').strip()[-200:]}")
    yield IMAGE
    subprocess.run(["podman", "rmi", "-f", IMAGE], capture_output=True, timeout=60, check=False)


def boxed(home: DaemonHome, name: str, image: str, *command: str) -> dict[str, object]:
    """A gang of two in containers."""
    return home.document(name, 2, *command, environment={"image": image, "container": "always"})


def containers() -> list[str]:
    """Return the containers of Fairway, running or not."""
    shown = subprocess.run(
        ["podman", "ps", "-a", "--format", "{{.Names}}"], capture_output=True, text=True, timeout=60, check=True
    )
    return [name for name in shown.stdout.split() if name.startswith("fairway-")]


def test_a_gang_runs_in_containers_and_its_ranks_know_each_other(home: DaemonHome, image: str) -> None:
    run = home.submit(boxed(home, "box", image, "sh", "-c", "echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR"))
    home.until_phase(run, "Succeeded")
    told = home.ask("logs", run)
    assert "rank 0 of 2" in told
    assert "rank 1 of 2" in told
    assert containers() == []


def test_a_stopped_run_leaves_no_container_even_after_a_kill_of_the_daemon(home: DaemonHome, image: str) -> None:
    run = home.submit(boxed(home, "box", image, "sleep", "600"))
    home.until_phase(run, "Running")
    home.until(lambda: len(containers()) == 2, "two containers")
    home.kill_daemon()
    assert home.get(run)["phase"] == "Running"
    home.ask("stop", run, "--now")
    home.until_phase(run, "Stopped")
    home.until(lambda: containers() == [], "the end of the containers")
