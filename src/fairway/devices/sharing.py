"""GPUs that several tasks share: NVIDIA's multi-process service (MPS), with limits for each task.

One service for a home, started when the first share is handed out and ended when nobody shares any more. It bounds
what each task may take of memory and of the processors, but only for tasks that use it: a program that points
`CUDA_MPS_PIPE_DIRECTORY` elsewhere gets the whole device. So shares are for tasks that trust each other.
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
"""Seconds in which the service must answer."""
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Share:
    """What a task may take of each of its devices."""

    milli: int
    """Thousandths of the processors."""
    memory: int
    """Bytes; 0 leaves it to the part of the processors."""
    devices: tuple[int, ...]
    """Bytes of memory that each of its devices has, in the order in which the task sees them."""

    def memory_on(self, device: int) -> int:
        """Bytes of a device with this much memory: what was asked for, or else the same part as of the processors."""
        return self.memory or device * self.milli // 1000


class Sharing:
    """The service of one home."""

    def __init__(self, folder: Path | Callable[[], Path], program: str) -> None:
        # Its path must be short: the service makes sockets in it.
        self._place = folder
        self._program = shutil.which(program) if program else None

    @property
    def _folder(self) -> Path:
        return self._place if isinstance(self._place, Path) else self._place()

    @property
    def available(self) -> bool:
        """Whether the driver brings the service."""
        return self._program is not None

    def variables(self, share: Share) -> dict[str, str]:
        """Variables for a task that gets a share. Without the service, tasks take turns on the device and nothing bounds them."""
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
        """See that the service runs, where there is one."""
        if self._program is None or (self.started and self._say("get_default_active_thread_percentage") is not None):
            return
        with contextlib.suppress(FileExistsError):
            self._folder.mkdir(mode=0o700)
        if not self._is_own:
            message = f"{self._folder} is not a folder of this user, and the service that shares GPUs must lie in it"
            raise RefusedError(message, fix="remove it, or set TMPDIR to a folder of your own before the daemon starts")
        for name in ("pipe", "log"):
            (self._folder / name).mkdir(mode=0o700, exist_ok=True)
        self._call(["-d"])

    @property
    def started(self) -> bool:
        """Whether the service was started and not ended."""
        return self._program is not None and self._is_own and self._pipe.exists()

    @property
    def _is_own(self) -> bool:
        """Whether the folder is one of this user: another user may have put something in its place."""
        try:
            state = self._folder.lstat()
        except OSError:
            return False
        return stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid()

    def end(self) -> None:
        """Nobody shares any more: end the service, if it runs."""
        if self.started:
            self._say("quit")
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _pipe(self) -> Path:
        return self._folder / "pipe"

    def _say(self, word: str) -> str | None:
        """Tell the service one thing; None when it does not answer."""
        return self._call([], word + "\n")

    def _call(self, arguments: Sequence[str], word: str = "") -> str | None:
        assert self._program is not None
        # It must see every device, whichever of them the daemon itself was started with.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
        environment["CUDA_MPS_PIPE_DIRECTORY"] = str(self._pipe)
        environment["CUDA_MPS_LOG_DIRECTORY"] = str(self._folder / "log")
        try:
            done = subprocess.run(
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
        return done.stdout if done.returncode == 0 else None


def framework_limits(share: Share) -> dict[str, str]:
    """Variables that keep frameworks from taking a whole device at their start, as they do unless told otherwise."""
    part = min((share.memory_on(memory) / memory for memory in share.devices if memory), default=share.milli / 1000)
    return {
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{part:.3f}",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }
