"""Runs a task's command in a container, through podman or docker."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairway.errors import RefusedError
from fairway.spec.job import ContainerUse, RuntimeEnvironment

PROGRAMS = ("podman", "docker")
_OURS_ALONE = frozenset(
    ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME", "TMPDIR", "LD_LIBRARY_PATH")
)
"""Variables that describe this machine; the image has its own."""


@dataclass(frozen=True, slots=True)
class ContainerCommand:
    """The settings to run commands in one image."""

    program: str
    image: str
    mounts: tuple[str, ...]
    """Folders that are mounted at the same path as outside."""
    read_only: tuple[str, ...] = ()
    user: int = 0
    group: int = 0

    def command(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        name: str,
        work_dir: str,
        devices: Sequence[str] = (),
        reads: bool = False,
    ) -> tuple[str, ...]:
        """Return the command line of the container client.

        Values of variables are taken from the client's environment, so that none shows in a process list. With `reads`, the
        container gets the client's standard input. Start the client with `env` set, and end the container with `removal(name)`:
        killing the client is not enough.
        """
        words = [self.program, "run", "--rm", "--init", "--name", name, "--network", "host", "--ipc", "host"]
        words += ["--interactive"] if reads else []
        words += self._identity()
        for folder in self.mounts:
            words += ["--volume", f"{folder}:{folder}:rw"]
        for folder in self.read_only:
            words += ["--volume", f"{folder}:{folder}:ro"]
        words += self._gpus(devices)
        for variable in sorted(env):
            if variable not in _OURS_ALONE:
                words += ["--env", variable]
        return (*words, "--workdir", work_dir, self.image, *argv)

    def removal(self, name: str) -> tuple[str, ...]:
        """Return the command that ends and removes a container; it does nothing when there is none."""
        return (self.program, "rm", "--force", name)

    @property
    def _is_podman(self) -> bool:
        return os.path.basename(self.program) == "podman"

    def _identity(self) -> list[str]:
        """Return options by which files that the task writes belong to the user who runs it."""
        if self._is_podman:
            return ["--userns", "keep-id"] if self.user else []
        return ["--user", f"{self.user}:{self.group}"]

    def _gpus(self, devices: Sequence[str]) -> list[str]:
        if not devices:
            return []
        if self._is_podman:
            return [word for device in devices for word in ("--device", f"nvidia.com/gpu={device}")]
        return ["--gpus", '"device=' + ",".join(devices) + '"']


def container_for(
    environment: RuntimeEnvironment, mounts: Sequence[str], read_only: Sequence[str], search: str | None, user: int, group: int
) -> ContainerCommand | None:
    """Return how to run the environment's image here; None when the document does not request a container."""
    if environment.container is not ContainerUse.ALWAYS:
        return None
    if not environment.image:
        message = "environment.container is always, and environment.image is empty"
        raise RefusedError(message, fix="name an image under environment.image")
    if environment.image.startswith("-"):
        message = f"environment.image is {environment.image!r}, which is not an image name"
        raise RefusedError(message, fix="write for example pytorch/pytorch:2.9")
    program = next((path for name in PROGRAMS if (path := shutil.which(name, path=search))), None)
    if program is None:
        message = f"environment.container is always, and neither {' nor '.join(PROGRAMS)} is on the path"
        raise RefusedError(message, fix="install one of them, or remove `container: always` to run without the image")
    for folder in (*mounts, *read_only):
        if ":" in folder:
            message = f"{folder!r} cannot be mounted into a container: its path contains a colon"
            raise RefusedError(message, fix="move or link it to a path without one")
    return ContainerCommand(program, environment.image, tuple(mounts), tuple(read_only), user, group)
