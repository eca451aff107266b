"""Checks before the start whether the launchers in a document's commands form one world across its tasks.

A launcher that reads its peers from variables joins them wherever it is called. A launcher that does not would train once in each
of several tasks, and all of them would succeed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from fairway.errors import RefusedError
from fairway.launch.early_import import script_of
from fairway.spec.job import JobSpec, TaskRole, TrainingFramework
from fairway.spec.resource import gpu_ask
from fairway.state.launcher import LIGHTNING, framework_of
from fairway.units import launcher
from fairway.units.launcher import Launcher, LauncherCall, LauncherScript, Read

_LIGHTNING = re.compile(r"^\s*(import|from)\s+(lightning|pytorch_lightning|lightning_fabric)\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class LauncherFindings:
    """The result of examining the commands and scripts of a document."""

    starters: dict[str, str] = field(default_factory=dict)
    """By role: the launcher that it calls, or `lightning`."""
    cautions: tuple[str, ...] = ()
    """Warnings for the author of the document."""


def examine(spec: JobSpec, read: Read) -> LauncherFindings:
    """Find the launchers that the roles call. Raises `RefusedError` for one that would train once in each task of its role.

    `read` returns the text of a script file. A document whose framework is `command` is not checked.
    """
    calls = {name: launcher.call_behind(role.command, role.script, read) for name, role in spec.roles.items()}
    launchers = {name: call for name, call in calls.items() if call is not None}
    starters = {name: call.starter.value for name, call in launchers.items()}
    starters |= {name: LIGHTNING for name, role in spec.roles.items() if name not in launchers and _uses_lightning(role, read)}
    if spec.framework is TrainingFramework.COMMAND or framework_of(spec, starters) is TrainingFramework.MPI:
        return LauncherFindings(starters)
    several = {name: call for name, call in launchers.items() if spec.roles[name].replicas.max > 1}
    for name, call in several.items():
        _refuse(name, spec.roles[name], call)
    return LauncherFindings(
        starters, tuple(words for name, call in several.items() if (words := _caution(name, spec.roles[name], call)))
    )


def _uses_lightning(role: TaskRole, read: Read) -> bool:
    """Whether the script of a plain `python script.py` imports Lightning."""
    path = script_of(role.command)
    return bool(path) and _LIGHTNING.search(read(LauncherScript(path, by_shell=True)) or "") is not None


def _refuse(name: str, role: TaskRole, call: LauncherCall) -> None:
    count = role.replicas.max
    if call.starter is Launcher.DEEPSPEED:
        message = f"roles.{name}: {count} replicas call `deepspeed`, which does not connect them: each would train alone"
        gpus = max(1, gpu_ask(role.resources).count) * count
        fix = f"ask for one replica with all GPUs (-w 1 --gpus {gpus}), or use `torchrun`"
        raise RefusedError(message, fix=fix)
    alone = _alone(call) if call.starter is Launcher.TORCHRUN else ""
    if alone:
        message = f"roles.{name}: {count} replicas call `torchrun {alone}`, which keeps each of them alone"
        fix = f"omit `{alone}`: torchrun then connects the replicas; to run them separately, set framework: command"
        raise RefusedError(message, fix=fix)
    in_a_script = bool(role.script) or (direct := launcher.starter_at(role.command)) is None or direct[1] >= len(role.command)
    options = {word.partition("=")[0].replace("_", "-") for word in call.arguments}
    on_cpu = not gpu_ask(role.resources).count
    if call.starter is Launcher.ACCELERATE and in_a_script and on_cpu and not options & {"--cpu", "--config-file"}:
        message = f"roles.{name}: its script calls `accelerate launch` without GPUs in {count} replicas: each would train alone"
        raise RefusedError(message, fix="write `accelerate launch --cpu` in the script, or make it the command itself")


def _caution(name: str, role: TaskRole, call: LauncherCall) -> str:
    if call.starter is not Launcher.MPI:
        return ""
    count = role.replicas.max
    return f"each of {count} tasks of role {name} calls `mpirun`, which starts {count} separate MPI jobs; ask for one replica"


def _alone(call: LauncherCall) -> str:
    """Return the flag that makes a `torchrun` run alone; empty when there is none."""
    words = call.arguments
    for position, word in enumerate(words):
        if not word.startswith("-"):
            # This is the program; the rest are its arguments.
            if position == 0 or not words[position - 1].startswith("-"):
                return ""
            continue
        flag, equals, value = word.partition("=")
        if flag.replace("_", "-") == "--standalone":
            return word
        if flag == "--nnodes" and (value if equals else "".join(words[position + 1 : position + 2])) in ("1", "1:1"):
            return "--nnodes=1"
    return ""
