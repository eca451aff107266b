"""The message from the daemon to the fork server: one order per task, with its locks. Standard library only.

An order has the full environment, which may contain secrets: it is sent through a socket and never written to disk. `public` is
the part that may be.
"""

from __future__ import annotations

import array
import json
import socket
import struct
from collections.abc import Mapping, Sequence

STANDBY = b"standby "
"""Prefix of an order that is not to be carried out yet: only its first command is started, as a spare."""
LOG_CAP = 256 << 20
"""Bytes of output kept per process; older parts are released. The document's `keep.log_size` has the same default."""
DEFAULT_GRACE = 30.0

_HEADER = struct.Struct("!II")
"""Length of the text, number of descriptors."""
_BATCH = 200
"""Descriptors per message; the kernel accepts 253."""


class TaskCommand:
    """One process of a task: its arguments, and its variables beyond the task's."""

    __slots__ = ("argv", "env")

    def __init__(self, argv: Sequence[str], env: dict[str, str] | None = None) -> None:
        self.argv = list(argv)
        self.env = dict(env or {})


class ProcessConditions:
    """The process attributes of the caller, which the task's processes get, too."""

    __slots__ = ("affinity", "limits", "nice")

    def __init__(
        self, nice: int | None = None, limits: Mapping[str, Sequence[int]] | None = None, affinity: Sequence[int] = ()
    ) -> None:
        self.nice = nice
        """The priority; None: the daemon's."""
        self.limits = {name: list(pair) for name, pair in (limits or {}).items()}
        """Soft and hard limits, by the name in `RLIMIT_NOFILE`; -1: unlimited."""
        self.affinity = list(affinity)
        """CPUs; empty: all."""

    def as_dict(self) -> dict[str, object]:
        """Return plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


class TaskOrder:
    """One task to start, with all the data that its supervisor gets."""

    __slots__ = (
        "cgroup", "cleanup", "clock", "commands", "conditions", "cpu_limit", "cwd", "env", "folder", "grace", "log_cap",
        "memory_limit", "peers", "poke", "secrets", "stderr_apart", "stdin", "task", "terminal", "umask",
    )  # fmt: skip

    def __init__(
        self,
        *,
        task: str,
        folder: str,
        cwd: str,
        env: dict[str, str],
        commands: Sequence[TaskCommand],
        grace: float = DEFAULT_GRACE,
        poke: str = "",
        terminal: bool = False,
        stdin: str = "",
        stderr_apart: bool = False,
        secrets: Sequence[str] = (),
        memory_limit: int = 0,
        cpu_limit: float = 0.0,
        log_cap: int = LOG_CAP,
        cgroup: bool = True,
        umask: int = 0o022,
        cleanup: Sequence[Sequence[str]] = (),
        clock: float = 0.0,
        peers: int = 1,
        conditions: ProcessConditions | None = None,
    ) -> None:
        self.task = task
        """The task's name for users: `default/mnist-7/worker-0#0`."""
        self.folder = folder
        """The attempt's own folder; it exists."""
        self.cwd = cwd
        self.env = env
        """The environment that all commands have in common."""
        self.commands = list(commands)
        self.grace = grace
        """Seconds between SIGTERM and SIGKILL when the supervisor itself decides."""
        self.poke = poke
        """The datagram socket on which to announce that the task is over; empty: none."""
        self.terminal = terminal
        """Whether the first process gets a terminal."""
        self.stdin = stdin
        """Where the caller offers its standard input, for the first process; empty: nowhere."""
        self.stderr_apart = stderr_apart
        """Whether the supervisor records which bytes of the log the first process wrote to its standard error."""
        self.secrets = list(secrets)
        """Names of variables whose values are kept out of records."""
        self.memory_limit, self.cpu_limit = memory_limit, cpu_limit
        """Bytes and cores for the whole task; 0: no limit."""
        self.log_cap = log_cap
        """Bytes of output kept of each process; 0: all."""
        self.cgroup = cgroup
        """Whether to use a control group where possible."""
        self.umask = umask
        """The umask of the task's processes; the daemon's own is stricter."""
        self.cleanup = [list(argv) for argv in cleanup]
        """Commands that end processes which are no descendants (containers); run when everything else has ended."""
        self.clock = clock
        """The daemon's time in seconds since the epoch at which monotonic time was 0; 0: use the wall clock."""
        self.peers = peers
        """Number of tasks that are to form one world, this one included; 1: do not check whether they do."""
        self.conditions = conditions or ProcessConditions()

    def encode(self) -> bytes:
        """Encode the order as text."""
        plain = {name: getattr(self, name) for name in self.__slots__ if name not in ("commands", "conditions")}
        plain["conditions"] = self.conditions.as_dict()
        plain["commands"] = [[command.argv, command.env] for command in self.commands]
        return json.dumps(plain).encode()

    @classmethod
    def decode(cls, text: bytes) -> TaskOrder:
        """Decode an order that `encode` wrote."""
        plain = json.loads(text)
        plain["commands"] = [TaskCommand(argv, env) for argv, env in plain["commands"]]
        plain["conditions"] = ProcessConditions(**plain["conditions"])
        return cls(**plain)

    def public(self) -> dict[str, object]:
        """Return what may be written to disk: names of variables, never their values."""
        return {
            "task": self.task,
            "cwd": self.cwd,
            "commands": [{"argv": command.argv, "variables": sorted({*self.env, *command.env})} for command in self.commands],
            "grace": self.grace,
            "terminal": self.terminal,
            "memory_limit": self.memory_limit,
            "cpu_limit": self.cpu_limit,
            "log_cap": self.log_cap,
            "cleanup": self.cleanup,
        }


def send(channel: socket.socket, text: bytes, descriptors: Sequence[int]) -> None:
    """Send one message with its descriptors; the sender may close them afterwards."""
    batches = [descriptors[at : at + _BATCH] for at in range(0, len(descriptors), _BATCH)] or [[]]
    _send_with(channel, _HEADER.pack(len(text), len(descriptors)), batches[0])
    for batch in batches[1:]:
        _send_with(channel, b"+", batch)
    channel.sendall(text)


def receive(channel: socket.socket) -> tuple[bytes, list[int]] | None:
    """Return the next message and its descriptors, which are close-on-exec; None when the other side has closed the socket."""
    header, descriptors = receive_with(channel, _HEADER.size)
    while 0 < len(header) < _HEADER.size and (more := channel.recv(_HEADER.size - len(header))):
        header += more
    if len(header) < _HEADER.size:
        return None
    length, count = _HEADER.unpack(header)
    while len(descriptors) < count:
        mark, more_descriptors = receive_with(channel, 1)
        if not mark:
            return None
        descriptors += more_descriptors
    text = bytearray()
    while len(text) < length:
        piece = channel.recv(min(length - len(text), 1 << 20))
        if not piece:
            return None
        text += piece
    return bytes(text), descriptors


def _send_with(channel: socket.socket, data: bytes, descriptors: Sequence[int]) -> None:
    carried = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    sent = channel.sendmsg([data], carried)
    if sent < len(data):
        channel.sendall(data[sent:])


def receive_with(channel: socket.socket, length: int) -> tuple[bytes, list[int]]:
    """Receive up to that many bytes, and the descriptors that came with them, which are close-on-exec."""
    size = array.array("i").itemsize
    data, carried, _flags, _address = channel.recvmsg(length, socket.CMSG_SPACE(_BATCH * size), socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, content in carried:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) - len(content) % size])
    return data, list(descriptors)
