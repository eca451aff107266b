"""Sharing of GPUs between tasks: NVIDIA's multi-process service (MPS), with limits for each task.

Each home runs one service. It is started when the first share is handed out and stopped when no task shares a GPU any more. The
service limits the memory and processors that each task may use, but only for tasks that go through it: a program that sets
`CUDA_MPS_PIPE_DIRECTORY` to another folder gets the whole device. Shares are therefore for tasks that trust each other.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairway.errors import RefusedError

PATIENCE = 20.0
"""Timeout for an answer of the service, in seconds."""
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class GpuShare:
    """The part of each of its devices that a task may use."""

    milli: int
    """Thousandths of the processors."""
    memory: int
    """Bytes; 0 means the same share as of the processors."""
    devices: tuple[int, ...]
    """Bytes of memory of each of the task's devices, in the order in which the task sees them."""

    def memory_on(self, device: int) -> int:
        """Return the limit on a device with this much memory: the requested bytes, or the same share as of the processors."""
        return self.memory or device * self.milli // 1000


class MpsService:
    """The MPS service of one home."""

    def __init__(self, folder: Path | Callable[[], Path], program: str) -> None:
        # The path must be short: the service creates Unix sockets in this folder.
        self._place = folder
        self._program = shutil.which(program) if program else None

    @property
    def _folder(self) -> Path:
        return self._place if isinstance(self._place, Path) else self._place()

    @property
    def available(self) -> bool:
        """Whether the program of the service, which comes with the driver, is installed."""
        return self._program is not None

    def variables(self, share: GpuShare) -> dict[str, str]:
        """Return environment variables for a task with a share.

        Without the service, tasks take turns on the device without any limit.
        """
        if self._program is None:
            return framework_limits(share)
        limits = ",".join(f"{index}={share.memory_on(memory) // _MIB}M" for index, memory in enumerate(share.devices))
        return {
            **framework_limits(share),
            "CUDA_MPS_PIPE_DIRECTORY": str(self._pipe),
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{max(0.1, share.milli / 10):g}",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": limits,
        }

    def start(self) -> None:
        """Start the service if it is available and does not run."""
        if self._program is None or (self.started and self._say("get_default_active_thread_percentage") is not None):
            return
        with contextlib.suppress(FileExistsError):
            self._folder.mkdir(mode=0o700)
        if not self._is_own:
            message = f"{self._folder} is not a folder of this user; the service that shares GPUs (MPS) keeps its files there"
            raise RefusedError(message, fix="remove it, or set TMPDIR to a folder of your own before the daemon starts")
        for name in ("pipe", "log"):
            (self._folder / name).mkdir(mode=0o700, exist_ok=True)
        self._call(["-d"])

    @property
    def started(self) -> bool:
        """Whether the service was started and not stopped."""
        return self._program is not None and self._is_own and self._pipe.exists()

    @property
    def _is_own(self) -> bool:
        """Whether the folder belongs to this user: another user may have created something at its path."""
        try:
            state = self._folder.lstat()
        except OSError:
            return False
        return stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid()

    def end(self) -> None:
        """Stop the service, if it runs, once no task shares a GPU any more."""
        if self.started:
            self._say("quit")
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _pipe(self) -> Path:
        return self._folder / "pipe"

    def _say(self, word: str) -> str | None:
        """Send a command to the service; return its output, or None if it does not answer."""
        return self._call([], word + "\n")

    def _call(self, arguments: Sequence[str], word: str = "") -> str | None:
        assert self._program is not None
        # The service must see every device, even if the daemon itself was started with only some of them.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
        environment["CUDA_MPS_PIPE_DIRECTORY"] = str(self._pipe)
        environment["CUDA_MPS_LOG_DIRECTORY"] = str(self._folder / "log")
        try:
            result = subprocess.run(
                [self._program, *arguments],
                input=word,
                env=environment,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
                start_new_session=True,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return result.stdout if result.returncode == 0 else None


def framework_limits(share: GpuShare) -> dict[str, str]:
    """Return variables that keep frameworks from allocating a whole device at start, which is their default."""
    fraction = min((share.memory_on(memory) / memory for memory in share.devices if memory), default=share.milli / 1000)
    return {
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{fraction:.3f}",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }
