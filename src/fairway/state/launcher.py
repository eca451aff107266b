"""Launchers that a run's commands call to start ranks, and the framework that follows from them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

from fairway.spec.job import JobSpec, TaskRole, TrainingFramework
from fairway.state.task import Task
from fairway.units import launcher
from fairway.units.launcher import Launcher

LIGHTNING = "lightning"
"""Pseudo-launcher: a program that starts ranks by itself, unless it detects that it is one of several."""


def starter_of(role: TaskRole, found: str = "") -> Launcher | None:
    """Return the launcher that a role's command or script calls; `found` is the launcher that its script file calls."""
    return _written(tuple(role.command), role.script) or next((starter for starter in Launcher if starter.value == found), None)


def framework_of(spec: JobSpec, found: Mapping[str, str]) -> TrainingFramework:
    """Return the effective framework.

    Several workers whose command is `mpirun` mean `mpi`: a single call, with slots for all workers. Otherwise each worker would
    form a world of its own.
    """
    if spec.framework is not TrainingFramework.AUTO or set(spec.roles) != {"worker"} or spec.roles["worker"].replicas.max == 1:
        return spec.framework
    called = starter_of(spec.roles["worker"], found.get("worker", ""))
    return TrainingFramework.MPI if called is Launcher.MPI else TrainingFramework.AUTO


def separate_worlds(tasks: Iterable[Task]) -> str:
    """Return a message about tasks whose launchers formed several worlds; empty if they did not, or if that is not known.

    A world has one rank 0. Two tasks that both ran a rank 0, each in the largest world that it saw, belong to two worlds.
    """
    ends = [task.exit for task in tasks if task.exit is not None and task.exit.world and task.exit.leads]
    if len(ends) < 2:
        return ""
    sizes = sorted({end.world for end in ends})
    size = " and ".join(map(str, sizes))
    problem = f"its tasks formed {len(ends)} separate worlds (of size {size}) instead of one: each world trained separately"
    return f"{problem}; remove flags such as --standalone and --nnodes from the launcher's command"


@functools.lru_cache(maxsize=1024)
def _written(command: tuple[str, ...], script: str) -> Launcher | None:
    """Cached, because the planner calls it for every waiting run, and few runs differ in it."""
    return launcher.starter_in_script(script) if script else launcher.starter_of(command)
