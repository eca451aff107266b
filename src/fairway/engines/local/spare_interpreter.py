"""Spare interpreters: decides which tasks get one and when, and whether it fits the task's next start."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairway.app.port.port import Clock
from fairway.engines.local import machine_capacity
from fairway.engines.local.fork_server_client import ForkServerClient
from fairway.engines.local.provision.preparer import PreparedRun
from fairway.engines.local.supervision.order import TaskCommand, TaskOrder
from fairway.engines.local.supervision.spare_process import VARIABLE
from fairway.launch.early_import import early_imports, script_of
from fairway.runtime import task_contract
from fairway.spec.job import SpareInterpreterUse, TrainingFramework
from fairway.state.job import JobKey, JobState
from fairway.state.phase import JobPhase
from fairway.state.task import TaskKey

WORTH_IT_AFTER = 300.0
"""Seconds that a run must have had for each spare: the imports take about three, so that they stay within one percent."""
KEPT = 60.0
"""Seconds that a spare is kept for a run that does not run: enough for a back-off, but not for waiting in the queue."""
ROOM = 2 << 30
"""Bytes of memory that must be free for another spare; PyTorch takes a quarter of it."""
_SCRIPT_LIMIT = 1 << 20
_FOLDER = Path("fairway", "runtime", "spare")
_MAY_DIFFER = re.compile(
    r"(FAIRWAY|MASTER|PET|DMLC|TORCHELASTIC|LOCAL|GROUP|ROLE|JAX|OMPI_COMM_WORLD)_\w+|RANK|WORLD_SIZE|TF_CONFIG|OMPI_MCA_orte_hnp_uri"
)
"""Variables with the meeting point of the gang; programs read them when they join it, never on import."""

Place = tuple[JobKey, str, int]
"""A task, whatever its attempt."""


@dataclass(slots=True)
class _SpareState:
    """The state of a task that may get a spare."""

    order: TaskOrder
    runtime_dir: Path
    made: int = 0
    """How many spares it has had."""
    hopeless: bool = False
    """The script does not qualify, or its spare has failed."""
    channel: socket.socket | None = None
    likeness: object = None
    """What must be equal for the spare to fit."""
    leaving: asyncio.TimerHandle | None = field(default=None, repr=False)


class SpareInterpreters:
    """Keeps a spare for each task that is worth one. A task without one is started in the usual way."""

    def __init__(self, spawner: ForkServerClient, clock: Clock) -> None:
        self._spawner = spawner
        self._clock = clock
        self._kept: dict[Place, _SpareState] = {}

    def remember(self, job: JobState, key: TaskKey, order: TaskOrder, prepared: PreparedRun) -> None:
        """Record that a task was started with this order; it may get a spare for its next start."""
        before = self._kept.pop(_place(key), None)
        if before is not None:
            self._let_go(before)
        if _is_plain(job, order, prepared):
            made, hopeless = (before.made, before.hopeless) if before else (0, False)
            self._kept[_place(key)] = _SpareState(order, prepared.runtime_dir, made, hopeless)

    async def tend(self, jobs: Iterable[JobState]) -> None:
        """Create the spares that are due for these runs, and keep the existing ones alive."""
        running = {job.key: job for job in jobs if job.phase is JobPhase.RUNNING}
        for place, state in list(self._kept.items()):
            job = running.get(place[0])
            if job is None:
                continue
            if state.channel is not None:
                self._keep(state)
            elif not state.hopeless and self._is_due(job, state):
                await self._make(place, state)

    @contextlib.contextmanager
    def taken(self, keys: Sequence[TaskKey], orders: Sequence[TaskOrder]) -> Iterator[dict[int, socket.socket]]:
        """Yield the spares that fit these orders, by index; they are used up."""
        channels: dict[int, socket.socket] = {}
        for number, (key, order) in enumerate(zip(keys, orders, strict=True)):
            state = self._kept.get(_place(key))
            if state is not None and state.channel is not None:
                channel, likeness = state.channel, state.likeness
                self._let_go(state, close=False)
                if likeness == _likeness(order):
                    channels[number] = channel
                else:
                    channel.close()
        try:
            yield channels
        finally:
            for channel in channels.values():
                channel.close()

    def forget(self, run: JobKey) -> None:
        """End the spares of a finished run."""
        for place in [place for place in self._kept if place[0] == run]:
            self._let_go(self._kept.pop(place))

    def close(self) -> None:
        """End all spares."""
        for state in self._kept.values():
            self._let_go(state)
        self._kept.clear()

    def _is_due(self, job: JobState, kept: _SpareState) -> bool:
        restart = job.spec.restart
        if job.restarts >= restart.max:
            return False
        if machine_capacity.available_bytes() < ROOM:
            return False
        ran = self._clock.now() - (job.started or self._clock.now())
        return restart.spares is SpareInterpreterUse.NOW or ran >= WORTH_IT_AFTER * (kept.made + 1)

    async def _make(self, place: Place, kept: _SpareState) -> None:
        order = kept.order
        likeness = _likeness(order)
        modules = await asyncio.to_thread(_modules, order)
        if not modules:
            kept.hopeless = True
        if not modules or self._kept.get(place) is not kept:
            return
        kept.channel = self._spawner.stand_by(_request(order, kept.runtime_dir, modules))
        kept.likeness = likeness
        kept.made += 1
        asyncio.get_running_loop().add_reader(kept.channel.fileno(), self._gave_up, kept)
        self._keep(kept)

    def _keep(self, kept: _SpareState) -> None:
        if kept.leaving is not None:
            kept.leaving.cancel()
        kept.leaving = asyncio.get_running_loop().call_later(KEPT, self._let_go, kept)

    def _gave_up(self, kept: _SpareState) -> None:
        """Give up on spares for the task. A standby sends nothing: a readable channel means that it was closed."""
        kept.hopeless = True
        self._let_go(kept)

    def _let_go(self, kept: _SpareState, close: bool = True) -> None:
        if kept.leaving is not None:
            kept.leaving.cancel()
            kept.leaving = None
        if kept.channel is not None:
            asyncio.get_running_loop().remove_reader(kept.channel.fileno())
            if close:
                kept.channel.close()
            kept.channel = None


def _place(key: TaskKey) -> Place:
    return key.run, key.role, key.index


def _is_plain(job: JobState, order: TaskOrder, prepared: PreparedRun) -> bool:
    """Return whether the task is a single plain Python program."""
    if (
        job.spec.framework not in (TrainingFramework.AUTO, TrainingFramework.PYTORCH)
        or job.spec.restart.spares is SpareInterpreterUse.NEVER
    ):
        return False
    if len(order.commands) != 1 or order.terminal or order.memory_limit or order.cpu_limit or prepared.wrap is not None:
        return False
    if not prepared.runtime_dir.joinpath(_FOLDER, "sitecustomize.py").is_file():
        return False
    return bool(job.spec.restart.max and script_of(order.commands[0].argv))


def _modules(order: TaskOrder) -> tuple[str, ...]:
    """Return the modules that the script imports first; none when it cannot be read."""
    path = Path(order.cwd, script_of(order.commands[0].argv))
    try:
        if path.stat().st_size > _SCRIPT_LIMIT:
            return ()
        return early_imports(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return ()


def _likeness(order: TaskOrder) -> object:
    """Return all that a spare takes over from the start after which it was created."""
    command = order.commands[0]
    env = {**order.env, **command.env}
    try:
        state = os.stat(os.path.join(order.cwd, script_of(command.argv)))
    except OSError:
        return object()
    script = (state.st_ino, state.st_size, state.st_mtime_ns)
    plain = (len(order.commands), order.terminal, order.memory_limit, order.cpu_limit)
    conditions = (order.umask, order.conditions.as_dict())
    compared_env = {name: value for name, value in env.items() if not _MAY_DIFFER.fullmatch(name)}
    return command.argv, order.cwd, script, plain, conditions, compared_env


def _request(order: TaskOrder, runtime_dir: Path, modules: Sequence[str]) -> TaskOrder:
    """Return the order of a standby: the same command, preceded on PYTHONPATH by the folder that makes it wait."""
    command = order.commands[0]
    env = {
        name: value
        for name, value in {**order.env, **command.env}.items()
        if name == task_contract.LINES or not name.startswith("FAIRWAY_")
    }
    # It belongs to this home, but to no attempt: it must not be taken for a process that an attempt left behind.
    env[task_contract.ATTEMPT_DIR] = f"{os.path.dirname(order.folder)}/spare"
    folder = os.path.dirname(os.path.realpath(os.path.join(order.cwd, script_of(command.argv))))
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(runtime_dir / _FOLDER), env.get("PYTHONPATH", ""))))
    env[VARIABLE] = json.dumps({"modules": list(modules), "folder": folder})
    return TaskOrder(
        task=order.task,
        folder=order.folder,
        cwd=order.cwd,
        env={},
        commands=[TaskCommand(command.argv, env)],
        umask=order.umask,
        conditions=order.conditions,
    )
