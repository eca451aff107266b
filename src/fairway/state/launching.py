"""What starts the ranks of a run: the launchers that its commands call, and the framework that follows from them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

from fairway.spec.job import Framework, JobSpec, Role
from fairway.state.task import Task
from fairway.units import programs
from fairway.units.programs import Starter

LIGHTNING = "lightning"
"""In place of a launcher: a program that starts ranks by itself, unless it finds that it is one of several."""


def starter_of(role: Role, found: str = "") -> Starter | None:
    """The launcher that a role's command or script calls; `found` is one that a script file was seen to call."""
    return _written(tuple(role.command), role.script) or next((each for each in Starter if each.value == found), None)


def framework_of(spec: JobSpec, found: Mapping[str, str]) -> Framework:
    """The framework in force. Several workers whose command is `mpirun` are what `mpi` means: one call, and slots for it.

    Each worker would otherwise make a world of its own.
    """
    if spec.framework is not Framework.AUTO or set(spec.roles) != {"worker"} or spec.roles["worker"].replicas.max == 1:
        return spec.framework
    called = starter_of(spec.roles["worker"], found.get("worker", ""))
    return Framework.MPI if called is Starter.MPI else Framework.AUTO


def separate_worlds(tasks: Iterable[Task]) -> str:
    """What to say of tasks whose launchers formed several worlds; empty when they did not, or nothing is known of it.

    A world has one rank 0. Two tasks that both ran one, each in the largest world that it saw, are in two worlds.
    """
    ends = [task.exit for task in tasks if task.exit is not None and task.exit.world and task.exit.leads]
    if len(ends) < 2:
        return ""
    sizes = sorted({end.world for end in ends})
    size = " and ".join(map(str, sizes))
    found = f"its tasks formed {len(ends)} separate worlds (of size {size}), not one: each trained for itself"
    return f"{found}; leave flags such as --standalone and --nnodes out of the call of the launcher"


@functools.lru_cache(maxsize=1024)
def _written(command: tuple[str, ...], script: str) -> Starter | None:
    """Planning asks this of every run that waits, and few runs differ in it."""
    return programs.starter_in_script(script) if script else programs.starter_of(command)
