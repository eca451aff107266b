"""What to do about a run that ended badly: one row a cause, each with a command that works when pasted. Pure."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass

from fairway.state.job import Job
from fairway.state.phase import JobPhase
from fairway.state.task import Exit, Task
from fairway.units import quantity
from fairway.units.suggest import nearest

_MARGIN = 1.5
"""How much more memory is suggested than was held."""
_HELD = re.compile(r"held ([\d.]+ [KMGT]?i?B)(?:, most of it rank \d+)?, more than its limit of ([\d.]+ [KMGT]?i?B)")
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_MODULE = re.compile(r"No module named '?([\w.]+)|from '([\w.]+)'")
_EXPECTED = re.compile(r"world.?size\D{0,20}(\d{1,6})\b\D{1,80}?(\d{1,6})\b", re.IGNORECASE)
"""The number of ranks that there are, and the one that is wanted."""
_REFUSED = re.compile(r"(?:unrecognized arguments?|[Nn]o such option):? (.+)")
_OPTION = re.compile(r"(?<![\w-])--[A-Za-z][\w-]*")
_PATH = re.compile(r"(?<!\w)'([^'\n]{1,200})'")
"""A path in quotes. The apostrophe of "can't open file" opens none."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that failed, and the end that was its cause."""

    job: Job
    task: Task | None
    error: str

    @property
    def name(self) -> str:
        """The run."""
        return self.job.key.name

    @property
    def exit(self) -> Exit:
        """How the task ended; empty when that is not known."""
        return self.task.exit if self.task is not None and self.task.exit is not None else Exit()

    @property
    def snapshot(self) -> bool:
        """Whether it ran a copy of its code: what is changed in the folder since then is not in it."""
        code = self.job.spec.code
        return not code.in_place and bool(code.path or code.git)

    def again(self) -> str:
        """How to run a program that was corrected: the folder itself goes on, a snapshot must be taken anew."""
        return f"fairway {'submit --like' if self.snapshot else 'resume'} {self.name}"

    def changed(self, flags: str) -> str:
        """How to run it with something changed."""
        return f"fairway submit --like {self.name} {flags}"


Row = tuple[str, "re.Pattern[str] | None", Callable[[Failure], str]]
"""A reason (empty: any), an expression for the error (None: any), and the words."""


def advice(job: Job, tasks: list[Task]) -> str:
    """What would help; empty for a run that ended well."""
    if job.phase is JobPhase.STOPPED:
        return f"fairway resume {job.key.name}"
    if job.phase is not JobPhase.FAILED:
        return ""
    failure = _failure(job, tasks)
    reason = job.outcome.reason if job.outcome is not None else ""
    for wanted, pattern, words in _TABLE:
        if wanted in ("", reason) and (pattern is None or pattern.search(failure.error)):
            return words(failure)
    return _mend(failure)


def _failure(job: Job, tasks: list[Task]) -> Failure:
    blamed = [task for task in tasks if job.outcome is not None and task.key.task == job.outcome.task and task.exit is not None]
    task = max(blamed, key=lambda one: one.key.attempt, default=None)
    said = job.outcome.message if job.outcome is not None else ""
    error = task.exit.error if task is not None and task.exit is not None else ""
    return Failure(job, task, error or said)


def _mend(failure: Failure) -> str:
    anew = " and take a new snapshot (`resume` runs the old one)" if failure.snapshot else ""
    return f"look at the log (fairway logs {failure.name}), correct the program{anew}, then: {failure.again()}"


def _resume(failure: Failure) -> str:
    return f"the program is not the cause; go on with: fairway resume {failure.name}"


def _module(failure: Failure) -> str:
    found = _MODULE.search(failure.error)
    module = (found[1] or found[2] or "").partition(".")[0] if found else ""
    spec = failure.job.spec.environment
    python = spec.python or failure.job.origin.interpreter or "python"
    if spec.requirements:
        return f"add what provides {module or 'it'} to {spec.requirements}, then: fairway submit --like {failure.name}"
    return (
        f"install what provides it ({python} -m pip install {module or 'NAME'}), name an interpreter that has it (--python PATH) "
        f"or a list of packages (--requirements FILE, environment.requirements in a document), then: {failure.again()}"
    )


def _memory(failure: Failure) -> str:
    role = failure.task.key.role if failure.task is not None else "worker"
    said = failure.job.outcome.message if failure.job.outcome is not None else ""
    held = _HELD.search(said)
    if held:
        value = sensible(max(_bytes(held[1]), _bytes(held[2])) * _MARGIN)
        more = failure.changed(f"--memory-limit {value}")
        return f"use a smaller batch, or raise roles.{role}.limits.memory in the document, as this does: {more}"
    asked = failure.task.need.memory if failure.task is not None else 0
    value = sensible(asked * _MARGIN) if asked else ""
    more = failure.changed(f"--memory {value or 'SIZE'}")
    return f"use a smaller batch or fewer workers, or ask for more (roles.{role}.resources.memory): {more}"


def _gpu_memory(failure: Failure) -> str:
    return f"use a smaller batch, accumulate gradients or ask for a larger GPU (--gpus TYPE:1), then: {failure.again()}"


def _timeout(failure: Failure) -> str:
    given = failure.job.spec.timeout
    longer = quantity.show_seconds(2 * quantity.seconds(given)) if given is not None else "TIME"
    saved = failure.job.progress.checkpoint_step
    more = f"`timeout:` in the document or --timeout says how long it may run: {failure.changed(f'--timeout {longer}')}"
    return (
        f"fairway resume {failure.name} goes on from step {saved:,} with the same timeout; {more}" if saved is not None else more
    )


def _world(failure: Failure) -> str:
    replicas = sum(role.replicas.max for role in failure.job.spec.roles.values())
    workers = _expected_workers(failure.error, replicas)
    then = failure.changed(f"--workers {workers}") if workers else failure.again()
    return (
        f"the program or its launcher expects another number of ranks than the run has ({replicas} x processes): make `replicas` "
        f"(--workers), `processes` (--processes) and the launcher's --nnodes and --nproc-per-node agree, then: {then}"
    )


def _expected_workers(error: str, replicas: int) -> int:
    """How many workers give the number of ranks that the error asks for; 0 when it does not say."""
    found = _EXPECTED.search(error)
    if found is None:
        return 0
    ranks, wanted = int(found[1]), int(found[2])
    each = ranks // replicas if replicas and ranks % replicas == 0 else 0
    return wanted // each if each and wanted and wanted % each == 0 and wanted != ranks else 0


def _port(failure: Failure) -> str:
    return (
        "another process has the port (`ss -ltnp` names it): end it, or use the port that Fairway gives the task "
        f"($MASTER_PORT, or the task's own in $FAIRWAY_PEERS), then: {failure.again()}"
    )


def _disk(failure: Failure) -> str:
    return (
        f"free space (`df -h` shows where; `fairway delete RUN` removes old runs with their checkpoints), then: "
        f"fairway resume {failure.name}"
    )


def _nan(failure: Failure) -> str:
    return f"the numbers became NaN: lower the learning rate, clip gradients or check the data, then: {failure.again()}"


def _flag(failure: Failure) -> str:
    command = _given(failure)
    if not command:
        return f"the program refuses an argument: correct the script, then: {failure.again()}"
    wrong, meant = _misspelt(failure, command)
    if meant:
        return f"{wrong} is not an argument of the program, {meant} is: {failure.changed(f'-- {_with(command, wrong, meant)}')}"
    return (
        f"the program refuses an argument (it accepts: {_help(failure)}): correct it in this command, and in `command:` of the "
        f"document: {failure.changed(f'-- {shlex.join(command)}')}"
    )


def _misspelt(failure: Failure, command: tuple[str, ...]) -> tuple[str, str]:
    """The option of the command that the program does not know, and the one that it does; empty when none is near."""
    refused = _REFUSED.search(failure.error)
    usage = failure.exit.tail.rpartition("usage:")[2]
    known = set(_OPTION.findall(usage.replace(failure.error, "")))
    given = {word.partition("=")[0] for word in command}
    for wrong in _OPTION.findall(refused[1]) if refused else ():
        meant = nearest(wrong, known - {wrong})
        if wrong in given and meant:
            return wrong, meant
    return "", ""


def _with(command: tuple[str, ...], wrong: str, meant: str) -> str:
    """The command with one option written as another."""
    return shlex.join(meant + word[len(wrong) :] if word == wrong or word.startswith(f"{wrong}=") else word for word in command)


def _given(failure: Failure) -> tuple[str, ...]:
    role = failure.task.key.role if failure.task is not None else ""
    return failure.job.spec.roles[role].command if role in failure.job.spec.roles else ()


def _help(failure: Failure) -> str:
    command = _given(failure)
    script = next((place for place, word in enumerate(command) if word.endswith(".py")), None)
    return " ".join(command[: script + 1]) + " --help" if script is not None else "see the log"


def _killed(failure: Failure) -> str:
    return (
        "something outside killed it (`dmesg` shows whether the kernel did so for memory: then ask for more with --memory); "
        f"go on with: fairway resume {failure.name}"
    )


def _crash(failure: Failure) -> str:
    return (
        f"it crashed in native code; the stack of each Python thread is in the log (fairway logs {failure.name} --tail 60): "
        f"mend or update the library that it names, then: {failure.again()}"
    )


def _file(failure: Failure) -> str:
    found = _PATH.search(failure.error)
    what = found[1] if found else "the file"
    folder = failure.job.origin.folder or "the folder of the run"
    named = next((word for word in _given(failure)[1:] if what in (word, posixpath.join(folder, word))), "")
    if not failure.snapshot and named:
        return f"the command names {named}, and {folder} has no such file: correct it and give the command again"
    if not failure.snapshot:
        return f"{what} is not there, seen from {folder}: correct the path, then: {failure.again()}"
    return (
        f"{what} is not in the snapshot of {folder} (what git ignores is left out): name it as an input (`data:`, "
        f"--data NAME=PATH) or run in the folder: {failure.changed('--in-place')}"
    )


def _requeue(failure: Failure) -> str:
    return (
        f"it exits with 75 and makes no progress: report steps, or save checkpoints and go on from them, then: {failure.again()}"
    )


def _expression(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


_WORLD = _expression(
    r"world.?size\D{0,20}\d+.{0,40}(does not match|mismatch|expected|!=)|(mismatch|expected|invalid).{0,40}world.?size"
    r"|\d+/\d+ clients joined|rank \d+ (is )?(out of range|not in)|invalid rank|nproc.?per.?node"
    r"|number of (ranks|processes).{0,40}(match|expected)"
)
_TABLE: tuple[Row, ...] = (
    ("Timeout", None, _timeout),
    ("OutOfMemory", None, _memory),
    ("GpuOutOfMemory", None, _gpu_memory),
    ("MissingModule", None, _module),
    ("Requeue", None, _requeue),
    ("", _WORLD, _world),
    ("", _expression(r"address already in use|EADDRINUSE|errno:? ?98\b"), _port),
    ("", _expression(r"no space left on device|disk quota exceeded|ENOSPC"), _disk),
    ("", _expression(r"CUDA out of memory"), _gpu_memory),
    ("", _expression(r"\S+: error: .*argument|unrecognized arguments|no such option"), _flag),
    ("", _expression(r"FileNotFoundError|can't open file|No such file or directory|does not exist"), _file),
    ("", _expression(r"\bNaNs?\b|non-finite|not finite"), _nan),
    ("Signal", _expression(r"SIGSEGV|SIGABRT|SIGBUS|SIGFPE|SIGILL|Segmentation fault"), _crash),
    ("Signal", None, _killed),
    ("PeerFailed", None, _resume),
    ("Lost", None, _resume),
    ("Disrupted", None, _resume),
)
"""The first row that fits counts."""


def sensible(count: float) -> str:
    """The next round quantity that is at least so many bytes: `768Mi`, `3Gi`."""
    unit, size = ("Gi", 1 << 30) if count > 768 << 20 else ("Mi", 1 << 20)
    power = 1
    while True:
        for number in (power, power * 3 // 2):  # 1, 2, 3, 4, 6, 8, 12, 16 ...
            if number * size >= count:
                return f"{number}{unit}"
        power *= 2


def _bytes(text: str) -> float:
    number, _, unit = text.partition(" ")
    return float(number) * _UNITS.get(unit, 1)
