"""Starts one process of a task: fork, its own session, its streams, its folder, exec. Standard library only."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import resource
import select
import signal
import termios
import time

from fairway.engines.local.supervision.order import ProcessConditions, TaskOrder
from fairway.engines.local.supervision.process import kernel_call
from fairway.engines.local.supervision.process.cgroup import Cgroup

OOM_SCORE = "300"
"""When memory runs out, the kernel kills a task before the user's own programs."""
_EXEC_PATIENCE = 10.0
"""Seconds that processes get from fork to exec; a folder on a dead network drive takes forever."""


class StandardStreams:
    """Standard input, output and error of a new process."""

    __slots__ = ("error", "input", "output", "terminal")

    def __init__(self, input_: int, output: int, terminal: bool = False) -> None:
        self.input = input_
        self.output = output
        self.error = output
        """Equal to the output, unless the caller keeps them apart."""
        self.terminal = terminal
        """Whether these are a terminal, to become the controlling one of the process's session."""


class ExecFailure:
    """Why a process could not be started."""

    __slots__ = ("errno", "rank", "stage")

    def __init__(self, rank: int, stage: str, errno: int) -> None:
        self.rank = rank
        self.stage = stage
        """`folder` or `program`."""
        self.errno = errno


class ProcessStarter:
    """Starts processes and collects the failures of those that could not become the user's program."""

    def __init__(self, order: TaskOrder, cgroup: Cgroup | None) -> None:
        self._order = order
        self._cgroup = cgroup
        self._read, self._write = os.pipe2(os.O_CLOEXEC)

    def start(self, rank: int, argv: list[str], env: dict[str, str], streams: StandardStreams) -> int:
        """Fork; the child becomes the program, or reports why it could not and exits."""
        parent = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        code = 126
        try:
            stage = "start"
            self._settle(parent, streams)
            stage = "folder"
            os.chdir(self._order.cwd)
            stage = "program"
            execute(argv, env)
        except (OSError, ValueError) as problem:
            code = 127 if isinstance(problem, FileNotFoundError) else 126
            # Python itself refuses arguments that no program can be given: with a zero byte.
            number = problem.errno or 0 if isinstance(problem, OSError) else errno.EINVAL
            os.write(self._write, json.dumps([rank, stage, number]).encode() + b"\n")
        finally:
            os._exit(code)

    def failures(self) -> list[ExecFailure]:
        """Wait until every process has become the user's program; return the failures."""
        os.close(self._write)
        text = b""
        deadline = time.monotonic() + _EXEC_PATIENCE
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        while (seconds_left := deadline - time.monotonic()) > 0 and poll.poll(seconds_left * 1000):
            # The last copy of the other end closes with the last exec.
            piece = os.read(self._read, 4096)
            if not piece:
                break
            text += piece
        os.close(self._read)
        return [ExecFailure(*json.loads(line)) for line in text.splitlines()]

    def _settle(self, parent: int, streams: StandardStreams) -> None:
        signal.set_wakeup_fd(-1)
        os.setsid()
        os.umask(self._order.umask)
        kernel_call.die_with_parent()
        if os.getppid() != parent:
            # The supervisor died before its death could be detected.
            os._exit(126)
        if self._cgroup is not None:
            self._cgroup.enter()
        if streams.terminal:
            fcntl.ioctl(streams.input, termios.TIOCSCTTY, 0)
        os.dup2(streams.input, 0)
        os.dup2(streams.output, 1)
        os.dup2(streams.error, 2)
        _prefer_for_oom()
        # Python ignores these two signals, and ignored signals stay ignored after exec. The fork server has reset the others.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        _take_conditions(self._order.conditions)


def execute(argv: list[str], env: dict[str, str]) -> None:
    """Replace this process by the program, found on the PATH of its own environment. Raises `OSError`; never returns."""
    if "/" in argv[0]:
        os.execve(argv[0], argv, env)
    refused: OSError | None = None
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        try:
            os.execve(os.path.join(folder or os.curdir, argv[0]), argv, env)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as problem:
            refused = refused or problem
    raise refused or FileNotFoundError(2, "No such file or directory")


def _take_conditions(given: ProcessConditions) -> None:
    """Apply the caller's process attributes as far as this user may; the others stay as they are."""
    if given.affinity:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, given.affinity)
    if given.nice is not None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, given.nice)
    for name, (soft, hard) in given.limits.items():
        number = getattr(resource, f"RLIMIT_{name}", None)
        if number is None:
            continue
        try:
            resource.setrlimit(number, (soft, hard))
        except (OSError, ValueError):
            # The hard limit of the daemon is lower, and only root may raise one.
            most = resource.getrlimit(number)[1]
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(number, (most if soft == -1 else min(soft, most), most))


def _prefer_for_oom() -> None:
    try:
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        os.write(descriptor, OOM_SCORE.encode())
        os.close(descriptor)
    except OSError:
        return
