"""Binds a gang: takes every lock, writes every order, and starts all supervisors at once, or none."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fairway.app.port.port import Clock
from fairway.app.system import crash_point
from fairway.devices.mps_service import GpuShare, MpsService
from fairway.engines.local import file_lock
from fairway.engines.local.device_lock import DeviceLocks
from fairway.engines.local.fork_server_client import ForkServerClient, SpawnAnswer
from fairway.engines.local.home import LOCK, ORDER, EngineHome, make_private
from fairway.engines.local.port_lease import PortLease, PortLeases
from fairway.engines.local.provision.preparer import PreparedRun
from fairway.engines.local.spare_interpreter import SpareInterpreters
from fairway.engines.local.supervision import attempt_record
from fairway.engines.local.supervision.order import ProcessConditions, TaskCommand, TaskOrder
from fairway.engines.local.task_observer import HOST, address_of, read_ports
from fairway.errors import FairwayError, RefusedError
from fairway.launch.mlflow import TOKEN, tracking_variables
from fairway.launch.task_launch import render
from fairway.launch.topology import GangMember, GangTopology, LaunchProcess, TaskFolders, TaskLaunch, ports_needed
from fairway.plan.action import BindGang
from fairway.runtime import task_contract
from fairway.spec.job import TrainingFramework
from fairway.state.job import JobState
from fairway.state.node import NodeDevice
from fairway.state.task import Task
from fairway.units import quantity
from fairway.units.role import leader

Reveal = Callable[[Iterable[str]], dict[str, str]]
"""Returns the values of secrets by name; raises `FairwayError` for one that does not exist."""
Tracks = Callable[[JobState], dict[str, str]]
"""Returns the variables that point a run's MLflow client to this server; none where it is off."""


@dataclass(frozen=True, slots=True)
class BoundTask:
    """One task of the gang with everything that is held for it."""

    task: Task
    folder: Path
    ports: tuple[int, ...]
    descriptors: tuple[int, ...]
    """The descriptors of the locks; they are passed to the supervisor."""


class TaskGangBinder:
    """Turns `BindGang` into running tasks."""

    def __init__(
        self,
        home: EngineHome,
        spawner: ForkServerClient,
        spares: SpareInterpreters,
        ports: PortLeases,
        devices: DeviceLocks,
        reveal: Reveal,
        umask: int,
        known_devices: Callable[[], Sequence[NodeDevice]],
        sharing: MpsService,
        tracks: Tracks,
        held: Sequence[int] = (),
        clock: Clock | None = None,
    ) -> None:
        self._home = home
        self._spawner = spawner
        self._spares = spares
        self._ports = ports
        self._devices = devices
        self._reveal = reveal
        self._umask = umask
        self._known_devices = known_devices
        self._sharing = sharing
        self._tracks = tracks
        self._clock = clock
        self._kept = tuple(held)
        """Descriptors that every supervisor holds while its task runs, such as the port to which the task sends its token."""

    async def bind(self, action: BindGang, prepared: PreparedRun) -> list[SpawnAnswer]:
        """Start all tasks of the action or none. Raises `FairwayError` when starting could not even be tried."""
        with contextlib.ExitStack() as stack:
            held = [self._hold(task, bool(action.peers), stack) for task in action.tasks]
            if any(task.shares_gpus for task in action.tasks):
                await asyncio.to_thread(self._sharing.start)
            secrets = self._reveal(action.job.spec.secrets) if action.job.spec.secrets else {}
            topology = self._topology(action, held)
            orders = [self._order(action.job, held_task, topology, prepared, secrets) for held_task in held]
            pairs = [(order, held_task.descriptors) for order, held_task in zip(orders, held, strict=True)]
            with self._spares.taken([held_task.task.key for held_task in held], orders) as standbys:
                answers = await self._spawner.spawn(pairs, standbys)
            if not any(answer.problem for answer in answers):
                for held_task, order in zip(held, orders, strict=True):
                    self._spares.remember(action.job, held_task.task.key, order, prepared)
            return [replace(answer, address=address_of(held_task.ports)) for held_task, answer in zip(held, answers, strict=True)]

    def _hold(self, task: Task, alone: bool, stack: contextlib.ExitStack) -> BoundTask:
        """Take the locks of one task. They are closed with the stack, after the supervisor has received its copies."""
        folder = self._home.attempt(task.key)
        with crash_point.reach("engine.lock"):
            attempt = file_lock.take(folder / LOCK)
        if attempt is None:
            message = f"{task.key.task} is being started by another process"
            raise RefusedError(message, fix="wait until it has started")
        stack.callback(file_lock.release, attempt)
        if os.path.exists(f"{folder}/{attempt_record.STARTED}") or os.path.exists(f"{folder}/{attempt_record.EXIT}"):
            message = f"{task.key.task} has been started before"
            raise RefusedError(message, fix="start the next attempt")
        devices = [descriptor for uuid in task.devices for descriptor in self._hold_device(task, uuid, stack)]
        lease = self._hold_ports(task, folder, alone)
        stack.callback(file_lock.release, *lease.descriptors)
        return BoundTask(task, folder, lease.ports, (attempt, *lease.descriptors, *devices, *self._kept))

    def _hold_device(self, task: Task, uuid: str, stack: contextlib.ExitStack) -> tuple[int, ...]:
        with crash_point.reach("engine.lock"):
            descriptors = self._devices.take(uuid, shared=task.shares_gpus)
        if descriptors is None:
            holder = self._devices.foreign_holder(uuid) or "another task"
            message = f"device {uuid} is held by {holder}"
            raise RefusedError(message, fix="wait until it is free, or request another one")
        stack.callback(file_lock.release, *descriptors)
        return descriptors

    def _hold_ports(self, task: Task, folder: Path, alone: bool) -> PortLease:
        """Reserve ports. A task that restarts beside running peers keeps its ports where possible: the peers use them."""
        known_ports = read_ports(folder)
        if alone and not known_ports and task.key.attempt > 0:
            known_ports = read_ports(self._home.attempt(replace(task.key, attempt=task.key.attempt - 1)))
        needed = ports_needed(max(task.processes, task.slots))
        with crash_point.reach("engine.lock"):
            lease = self._ports.take(needed, known_ports)
        if lease is None:
            message = f"{task.key.task} needs {needed} ports, but fewer are free"
            raise RefusedError(message, fix="stop other programs that listen on ports")
        return lease

    def _topology(self, action: BindGang, held: Sequence[BoundTask]) -> GangTopology:
        """Return the members of the gang with their addresses, in the order of the document."""
        members = [_member(held_task.task, held_task.ports) for held_task in held]
        members += [_member(peer, read_ports(self._home.attempt(peer.key))) for peer in action.peers]
        roles = list(action.job.spec.roles)
        members.sort(key=lambda member: (roles.index(member.role), member.index))
        key = action.job.key
        return GangTopology(key.name, key.namespace, tuple(members), action.job.attempt, action.job.origin.starters)

    def _order(
        self, job: JobState, held: BoundTask, topology: GangTopology, prepared: PreparedRun, secrets: dict[str, str]
    ) -> TaskOrder:
        """Write the task's files into its folder, and return the order for its supervisor."""
        task, folder = held.task, held.folder
        member = next(item for item in topology.members if (item.role, item.index) == (task.key.role, task.key.index))
        launch = render(job.key.name, job.spec, topology, member, self._folders(job, folder, prepared))
        _write_files(folder, launch)
        terminal = job.origin.terminal and _is_first(topology, member)
        usual = {"TERM": "xterm-256color"} if terminal else {}
        env = {**usual, **prepared.env, **secrets, **self._device_variables(task)}
        tracking = tracking_variables(self._tracks(job), job.spec, task.key.role, env)
        env |= tracking
        stdin = job.origin.stdin if task.key.task == leader(tuple(job.spec.roles)) else ""
        container = f"fairway-{self._home.name[:8]}-{job.key.name}-{folder.name}"
        limits = job.spec.roles[task.key.role].limits
        umask = job.origin.conditions.umask if job.origin.conditions is not None else None
        order = TaskOrder(
            task=str(task.key),
            folder=str(folder),
            cwd=str(prepared.work_dir),
            env=env,
            commands=[_command(item, env, prepared, container, task.devices, stdin) for item in launch.processes],
            cleanup=_cleanup(launch, prepared, container),
            grace=quantity.seconds(job.spec.grace),
            poke=str(self._home.poke),
            terminal=terminal,
            stdin=stdin,
            stderr_apart=job.origin.stderr_apart and len(topology.members) == len(launch.processes) == 1,
            secrets=(*secrets, *({TOKEN} & tracking.keys())),
            memory_limit=int(quantity.byte_count(limits.memory) * job.memory_factor) if limits.memory else 0,
            cpu_limit=quantity.number(limits.cpu) if limits.cpu else 0.0,
            log_cap=quantity.byte_count(job.spec.keep.log_size),
            umask=self._umask if umask is None else umask,
            conditions=_conditions(job),
            peers=_world_peers(job, topology, member),
            clock=self._clock.now() - time.monotonic() if self._clock is not None else 0.0,
        )
        public = {**order.public(), "ports": list(held.ports), "devices": list(task.devices), "node": task.node}
        with crash_point.reach("engine.rename"):
            attempt_record.write_record(str(folder), ORDER, public)
        return order

    def _folders(self, job: JobState, attempt: Path, prepared: PreparedRun) -> TaskFolders:
        run = self._home.job(job.key)
        return TaskFolders(
            work=str(prepared.work_dir),
            attempt=str(attempt),
            shared=str(run / "shared"),
            checkpoints=str(run / "checkpoints"),
            tensorboard=str(run / "tensorboard"),
            outputs={name: str(make_private(make_private(run / "outputs") / name)) for name in job.spec.outputs},
            data=dict(prepared.data),
            runtime=str(prepared.runtime_dir),
        )

    def _device_variables(self, task: Task) -> dict[str, str]:
        memory_by_device = {device.uuid: device.memory for device in self._known_devices()}
        if not task.devices:
            # Where there are devices, a task that requested none must not use any.
            return {"CUDA_VISIBLE_DEVICES": ""} if memory_by_device else {}
        visible = {"CUDA_VISIBLE_DEVICES": ",".join(task.devices)}
        if not task.shares_gpus:
            return visible
        memory = tuple(memory_by_device.get(uuid, 0) for uuid in task.devices)
        return {**visible, **self._sharing.variables(GpuShare(task.need.gpu_milli, task.need.gpu_memory, memory))}


def added_variables(process: LaunchProcess, env: dict[str, str]) -> dict[str, str]:
    """Return the variables that the launch adds to the task's environment."""
    added = {name: value for name, value in process.env.items() if not (name in process.gives_way and name in env)}
    if task_contract.UNBUFFERED not in added:
        added.pop(task_contract.LINES, None)
    if env.get("PYTHONPATH") and "PYTHONPATH" in added:
        added["PYTHONPATH"] = f"{added['PYTHONPATH']}{os.pathsep}{env['PYTHONPATH']}"
    return added


def _command(
    process: LaunchProcess, env: dict[str, str], prepared: PreparedRun, container: str, devices: Sequence[str], stdin: str
) -> TaskCommand:
    added = added_variables(process, env)
    argv = prepared.resolved(process.argv)
    if prepared.wrap is not None:
        name, work = f"{container}-{process.local_rank}", str(prepared.work_dir)
        reads = bool(stdin) and process.local_rank == 0
        argv = prepared.wrap.command(argv, {**env, **added}, name=name, work_dir=work, devices=devices, reads=reads)
    return TaskCommand(argv, added)


def _cleanup(launch: TaskLaunch, prepared: PreparedRun, container: str) -> list[Sequence[str]]:
    if prepared.wrap is None:
        return []
    return [prepared.wrap.removal(f"{container}-{process.local_rank}") for process in launch.processes]


def _member(task: Task, ports: tuple[int, ...]) -> GangMember:
    if not ports:
        message = f"{task.key.task} runs, but the record of its ports is missing"
        raise FairwayError(message, fix="stop the run and start it again")
    return GangMember(
        role=task.key.role,
        index=task.key.index,
        host=HOST,
        ports=ports,
        processes=task.processes,
        attempt=task.key.attempt,
        slots=task.slots,
        devices=task.devices,
    )


def _world_peers(job: JobState, topology: GangTopology, member: GangMember) -> int:
    """Return how many tasks form one world with this one; 1 where the framework has no world or its size changes."""
    elastic = any(role.replicas.min < role.replicas.max for role in job.spec.roles.values())
    if job.spec.framework is TrainingFramework.COMMAND or elastic or member not in topology.computing:
        return 1
    return len(topology.computing)


def _conditions(job: JobState) -> ProcessConditions | None:
    conditions = job.origin.conditions
    return ProcessConditions(conditions.nice, conditions.limits, conditions.affinity) if conditions is not None else None


def _is_first(topology: GangTopology, member: GangMember) -> bool:
    first = topology.computing or topology.members
    return (first[0].role, first[0].index) == (member.role, member.index)


def _write_files(folder: Path, launch: TaskLaunch) -> None:
    for name, text in launch.files.items():
        path = folder / name
        if not Path(os.path.normpath(path)).is_relative_to(folder):
            message = f"the file {name!r} leads out of the task's folder"
            raise RefusedError(message, fix="use a relative path without ..")
        make_private(path.parent)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
