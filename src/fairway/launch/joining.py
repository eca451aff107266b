"""Whether the launchers that a document calls form one world over its tasks: seen before the start.

A launcher that reads its peers from variables joins wherever it is called. One that does not, in several tasks, would
train once in each, and every one of them would succeed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from fairway.errors import RefusedError
from fairway.launch.warmup import script_of
from fairway.spec.job import Framework, JobSpec, Role
from fairway.spec.resources import gpu_ask
from fairway.state.launching import LIGHTNING, framework_of
from fairway.units import programs
from fairway.units.programs import Call, Read, ScriptFile, Starter

_LIGHTNING = re.compile(r"^\s*(import|from)\s+(lightning|pytorch_lightning|lightning_fabric)\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Found:
    """What a look at the commands and scripts of a document found."""

    starters: dict[str, str] = field(default_factory=dict)
    """By role: the launcher that it calls, or `lightning`."""
    cautions: tuple[str, ...] = ()
    """What its author should know."""


def examine(spec: JobSpec, read: Read) -> Found:
    """The launchers that the roles call. Refused: one that would train once in each task of its role.

    `read` gives the text of a script file. A document whose framework is `command` is left alone.
    """
    calls = {name: programs.call_behind(role.command, role.script, read) for name, role in spec.roles.items()}
    found = {name: call for name, call in calls.items() if call is not None}
    starters = {name: call.starter.value for name, call in found.items()}
    starters |= {name: LIGHTNING for name, role in spec.roles.items() if name not in found and _uses_lightning(role, read)}
    if spec.framework is Framework.COMMAND or framework_of(spec, starters) is Framework.MPI:
        return Found(starters)
    several = {name: call for name, call in found.items() if spec.roles[name].replicas.max > 1}
    for name, call in several.items():
        _refuse(name, spec.roles[name], call)
    return Found(starters, tuple(words for name, call in several.items() if (words := _caution(name, spec.roles[name], call))))


def _uses_lightning(role: Role, read: Read) -> bool:
    """Whether the script of a plain `python script.py` imports Lightning."""
    path = script_of(role.command)
    return bool(path) and _LIGHTNING.search(read(ScriptFile(path, by_shell=True)) or "") is not None


def _refuse(name: str, role: Role, call: Call) -> None:
    count = role.replicas.max
    if call.starter is Starter.DEEPSPEED:
        message = f"roles.{name}: {count} replicas call `deepspeed`, which knows nothing of the others: they would train apart"
        gpus = max(1, gpu_ask(role.resources).count) * count
        fix = f"ask for one replica with all GPUs (-w 1 --gpus {gpus}), or use `torchrun`"
        raise RefusedError(message, fix=fix)
    alone = _alone(call) if call.starter is Starter.TORCHRUN else ""
    if alone:
        message = f"roles.{name}: {count} replicas call `torchrun {alone}`, by which none of them can join the others"
        fix = f"leave `{alone}` out: torchrun learns of the others by itself; to run them apart, set framework: command"
        raise RefusedError(message, fix=fix)
    in_a_script = bool(role.script) or (found := programs.starter_at(role.command)) is None or found[1] >= len(role.command)
    given = {word.partition("=")[0].replace("_", "-") for word in call.arguments}
    on_cpu = not gpu_ask(role.resources).count
    if call.starter is Starter.ACCELERATE and in_a_script and on_cpu and not given & {"--cpu", "--config-file"}:
        message = f"roles.{name}: its script calls `accelerate launch` without GPUs in {count} replicas: they would train apart"
        raise RefusedError(message, fix="write `accelerate launch --cpu` in the script, or make it the command itself")


def _caution(name: str, role: Role, call: Call) -> str:
    if call.starter is not Starter.MPI:
        return ""
    count = role.replicas.max
    return f"each of {count} tasks of role {name} calls `mpirun`, which makes {count} worlds; ask for one replica"


def _alone(call: Call) -> str:
    """The flag by which a `torchrun` refuses company; empty when it has none."""
    words = call.arguments
    for at, word in enumerate(words):
        if not word.startswith("-"):
            # The program; what follows is the program's.
            if at == 0 or not words[at - 1].startswith("-"):
                return ""
            continue
        flag, given, value = word.partition("=")
        if flag.replace("_", "-") == "--standalone":
            return word
        if flag == "--nnodes" and (value if given else "".join(words[at + 1 : at + 2])) in ("1", "1:1"):
            return "--nnodes=1"
    return ""
