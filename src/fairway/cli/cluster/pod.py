"""Access to a run's pods through the API server, with the caller's own right to exec into them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading

from fairway.cli.address import job_path
from fairway.cli.session import is_terminal, write
from fairway.errors import ConflictError, FairwayError, NotFoundError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from typing import Any, TypeVar

    from fairway.cli.session import CommandSession
    from fairway.engines.kubernetes.client.api import ApiClient
    from fairway.engines.kubernetes.client.pod_session import ExecSession as Inside

    T = TypeVar("T")

CONTAINER = "task"
EXTRA = "pip install 'fairway[kubernetes]'"
"""How to install what commands on a cluster need."""
_BESIDE = """
import json, os, sys
told = json.loads(os.environ.get("FAIRWAY_POD_ORDER") or "{}")
starts = told.get("starts") or [[[], {}, []]]
environment = {**os.environ, **starts[0][1]}
environment.pop("FAIRWAY_POD_ORDER", None)
environment.pop("FAIRWAY_TOKEN", None)
if told.get("cwd"):
    os.chdir(told["cwd"])
try:
    os.execvpe(sys.argv[1], sys.argv[1:], environment)
except OSError as error:
    sys.exit(f"{sys.argv[1]}: {error.strerror}")
"""
"""Program run in the container: replaces itself by the command, with folder and variables of the task's first process."""


class TaskPod:
    """A pod of a run, and the interpreter that its container was started with."""

    def __init__(self, run: str, found: dict[str, Any]) -> None:
        labels = found["metadata"]["labels"]
        self.run = run
        self.pod = str(found["metadata"]["name"])
        self.namespace = str(found["metadata"]["namespace"])
        self.role, self.index = labels["fairway.dev/role"], int(labels["fairway.dev/index"])
        self.attempt = int(labels["fairway.dev/attempt"])
        self.runs = found.get("status", {}).get("phase") == "Running"
        container = next(candidate for candidate in found["spec"]["containers"] if candidate["name"] == CONTAINER)
        self.python = str(container["command"][0])


def enter(session: CommandSession, work: Callable[[ApiClient], Awaitable[T]]) -> T:
    """Run `work` with a client of the session's cluster and return its result."""
    try:
        from fairway.engines.kubernetes.client import api
    except ImportError as error:
        message = f"{error.name} is not installed, and commands inside pods need it"
        raise FairwayError(message, fix=EXTRA) from None
    from fairway.app.system.clock import SystemClock

    assert session.cluster is not None
    target = session.cluster.target

    async def act() -> T:
        async with api.connect(target, SystemClock()) as client:
            return await work(client)

    return asyncio.run(act())


async def find(client: ApiClient, session: CommandSession, name: str, role: str = "", index: int | None = None) -> TaskPod:
    """Return the pod of a running task with this role and index; by default the first."""
    from fairway.engines.kubernetes.client.api_path import ApiResource

    pods = ApiResource(dict, "", "v1", "pods", "Pod")
    run = str(session.fetch(job_path(name))["name"])
    pod_list = await client.list(pods, session.namespace, labels=f"fairway.dev/run={run}")
    candidates = sorted(
        (TaskPod(run, pod) for pod in pod_list.items), key=lambda candidate: (-candidate.attempt, candidate.role, candidate.index)
    )
    running = [candidate for candidate in candidates if candidate.runs]
    for candidate in running:
        if role in ("", candidate.role) and index in (None, candidate.index):
            return candidate
    description = f"{role or 'a task'}{'' if index is None else f' with index {index}'}"
    running_names = ", ".join(f"{candidate.role}-{candidate.index}" for candidate in running) or "no task"
    message = f"{description} of {run} does not run; {running_names} does"
    raise ConflictError(message, fix=f"see `fairway get {run}`")


async def run_beside(client: ApiClient, place: TaskPod, command: Sequence[str]) -> int:
    """Run a command in the pod, connected to this process's input and output; return its exit code."""
    terminal = is_terminal(0) and is_terminal(1)
    full_command = [place.python, "-c", _BESIDE, *command]
    async with executing(client, place, full_command, tty=terminal) as inside, _keys(terminal):
        stop_feeding = _feed(inside)
        _follow_size(inside, terminal)
        try:
            await _show(inside)
        finally:
            stop_feeding.set()
        return inside.exit_code


@contextlib.asynccontextmanager
async def executing(client: ApiClient, place: TaskPod, command: Sequence[str], *, tty: bool = False) -> AsyncIterator[Inside]:
    """Execute a program in the pod's container."""
    from fairway.engines.kubernetes.client.pod_session import execute

    async with execute(
        client.connection, place.pod, place.namespace, list(command), container=CONTAINER, stdin=True, tty=tty
    ) as inside:
        yield inside


async def _show(inside: Inside) -> None:
    from fairway.engines.kubernetes.client.pod_session import STDERR

    async for channel, data in inside.output():
        if channel == STDERR:
            sys.stderr.buffer.write(data)
            sys.stderr.buffer.flush()
        else:
            write(data)


@contextlib.asynccontextmanager
async def _keys(terminal: bool) -> AsyncIterator[None]:
    """Put the terminal into raw mode, so that keys go to the pod as they are typed."""
    if not terminal:
        yield
        return
    from fairway.cli.terminal.tty import KeyboardInput

    with KeyboardInput(raw=True):
        yield


def _feed(inside: Inside) -> threading.Event:
    """Forward standard input as it arrives. A thread reads it, because a file or a closed terminal cannot be polled."""
    loop, stopped = asyncio.get_running_loop(), threading.Event()

    def read() -> None:
        while not stopped.is_set():
            try:
                data = os.read(0, 65536)
            except OSError:
                data = b""
            write = inside.write(data) if data else inside.close_input()
            try:
                asyncio.run_coroutine_threadsafe(write, loop).result()
            except Exception:  # noqa: BLE001 - the connection is gone; the reader of its output raises the error
                write.close()
                return
            if not data:
                return

    threading.Thread(target=read, daemon=True).start()
    return stopped


def _follow_size(inside: Inside, terminal: bool) -> None:
    if not terminal:
        return
    from fairway.cli.terminal.tty import size

    loop = asyncio.get_running_loop()
    pending: set[asyncio.Task[None]] = set()

    def resize() -> None:
        rows, columns = size()
        task = loop.create_task(inside.resize(columns, rows))
        pending.add(task)
        task.add_done_callback(pending.discard)

    loop.add_signal_handler(signal.SIGWINCH, resize)
    resize()


# Files

_OUT = """
import os, sys, tarfile
root, path = os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2])
if path != root and not path.startswith(root + os.sep):
    sys.exit(f"{sys.argv[2]} leads outside the run's folder")
if not os.path.exists(path):
    folder = os.path.dirname(path)
    there = ", ".join(sorted(os.listdir(folder))[:10]) if os.path.isdir(folder) else ""
    sys.exit(f"there is no {sys.argv[2]}; that folder contains: {there or 'nothing'}")
with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
    archive.add(path, "it")
"""
_IN = """
import os, sys, tarfile
root, path, name = os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2]), sys.argv[3]
if os.path.isdir(path):
    path = os.path.join(path, name)
if path != root and not path.startswith(root + os.sep):
    sys.exit(f"{sys.argv[2]} leads outside the run's folder")
if os.path.exists(path):
    sys.exit(f"{path} already exists")
os.makedirs(os.path.dirname(path), exist_ok=True)
with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
    for member in archive:
        member.name = path + member.name[len("it"):]
        if os.path.isabs(member.linkname) or ".." in member.name.split("/"):
            sys.exit(f"{member.name} leads outside its folder")
        archive.extract(member, "/")
"""
"""Programs run in the container by its interpreter, because `tar` may not be installed."""


async def copy_out(client: ApiClient, place: TaskPod, root: str, path: str, target: str) -> None:
    """Copy a file or a folder of the pod to this machine; after a failure nothing remains."""
    import shutil
    import tarfile
    import tempfile

    parent = os.path.dirname(os.path.abspath(target))
    temporary = tempfile.mkdtemp(prefix=".fairway-cp-", dir=parent)
    try:
        packed = os.path.join(temporary, "packed")
        with open(packed, "wb") as file:
            await _talk(client, place, [place.python, "-c", _OUT, root, path], take=file.write)
        with tarfile.open(packed) as archive:
            archive.extractall(temporary, filter="data")
        os.rename(os.path.join(temporary, "it"), target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


async def copy_in(client: ApiClient, place: TaskPod, root: str, path: str, source: str) -> None:
    """Copy a file or a folder of this machine into the pod."""
    import tarfile
    import tempfile

    with tempfile.TemporaryFile() as packed:
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(source, "it")
        packed.seek(0)
        name = os.path.basename(os.path.abspath(source))
        await _talk(client, place, [place.python, "-c", _IN, root, path, name], give=packed.read)


async def _talk(
    client: ApiClient,
    place: TaskPod,
    command: Sequence[str],
    *,
    give: Callable[[int], bytes] | None = None,
    take: Callable[[bytes], object] | None = None,
) -> None:
    """Run a program in the pod; `give` supplies its input and `take` gets its output. A failure is raised with its messages."""
    from fairway.engines.kubernetes.client.pod_session import STDOUT

    errors = b""
    async with executing(client, place, command) as inside:

        async def feed() -> None:
            while give is not None and (data := give(1 << 18)):
                await inside.write(data)
            await inside.close_input()

        feeder = asyncio.create_task(feed())
        try:
            async for channel, data in inside.output():
                if channel == STDOUT and take is not None:
                    take(data)
                else:
                    errors += data
        finally:
            feeder.cancel()
            await asyncio.gather(feeder, return_exceptions=True)
        if inside.exit_code:
            raise NotFoundError(errors.decode("utf-8", "replace").strip() or f"it ended with {inside.exit_code}")
