"""Advice for failed runs: one row per cause, each with a command to paste. Pure."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass

from fairway.state.job import JobState
from fairway.state.phase import JobPhase
from fairway.state.task import Task, TaskExit
from fairway.units import quantity
from fairway.units.suggestion import nearest

_MARGIN = 1.5
"""Factor by which the suggested memory exceeds the memory used."""
_HELD = re.compile(r"held ([\d.]+ [KMGT]?i?B)(?:, most of it rank \d+)?, more than its limit of ([\d.]+ [KMGT]?i?B)")
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_MODULE = re.compile(r"No module named '?([\w.]+)|from '([\w.]+)'")
_EXPECTED = re.compile(r"world.?size\D{0,20}(\d{1,6})\b\D{1,80}?(\d{1,6})\b", re.IGNORECASE)
"""Matches the actual and the expected number of ranks."""
_REFUSED = re.compile(r"(?:unrecognized arguments?|[Nn]o such option):? (.+)")
_OPTION = re.compile(r"(?<![\w-])--[A-Za-z][\w-]*")
_PATH = re.compile(r"(?<!\w)'([^'\n]{1,200})'")
"""A path in quotes. The apostrophe of "can't open file" does not start one."""


@dataclass(frozen=True, slots=True)
class RunFailure:
    """A failed run, and the task and error that caused the failure."""

    job: JobState
    task: Task | None
    error: str

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.job.key.name

    @property
    def exit(self) -> TaskExit:
        """The exit of the task; an empty one if unknown."""
        return self.task.exit if self.task is not None and self.task.exit is not None else TaskExit()

    @property
    def snapshot(self) -> bool:
        """Whether the run used a snapshot of its code, which lacks later changes in the folder."""
        code = self.job.spec.code
        return not code.in_place and bool(code.path or code.git)

    def again(self) -> str:
        """Return the command that runs a corrected program: `resume` for the folder itself, a new submit for a snapshot."""
        return f"fairway {'submit --like' if self.snapshot else 'resume'} {self.name}"

    def changed(self, flags: str) -> str:
        """Return the command that submits the run again with other flags."""
        return f"fairway submit --like {self.name} {flags}"


Row = tuple[str, "re.Pattern[str] | None", Callable[[RunFailure], str]]
"""A reason (empty: any), a pattern for the error (None: any), and the function that returns the advice."""


def advice(job: JobState, tasks: list[Task]) -> str:
    """Return what would help; empty for a run that succeeded."""
    if job.phase is JobPhase.STOPPED:
        return f"fairway resume {job.key.name}"
    if job.phase is not JobPhase.FAILED:
        return ""
    failure = _failure(job, tasks)
    reason = job.outcome.reason if job.outcome is not None else ""
    for row_reason, pattern, describe in _TABLE:
        if row_reason in ("", reason) and (pattern is None or pattern.search(failure.error)):
            return describe(failure)
    return _mend(failure)


def _failure(job: JobState, tasks: list[Task]) -> RunFailure:
    candidates = [
        task for task in tasks if job.outcome is not None and task.key.task == job.outcome.task and task.exit is not None
    ]
    task = max(candidates, key=lambda candidate: candidate.key.attempt, default=None)
    message = job.outcome.message if job.outcome is not None else ""
    error = task.exit.error if task is not None and task.exit is not None else ""
    return RunFailure(job, task, error or message)


def _mend(failure: RunFailure) -> str:
    snapshot_hint = " and take a new snapshot (`resume` runs the old one)" if failure.snapshot else ""
    return f"look at the log (fairway logs {failure.name}), correct the program{snapshot_hint}, then: {failure.again()}"


def _resume(failure: RunFailure) -> str:
    return f"the program is not the cause; continue with: fairway resume {failure.name}"


def _module(failure: RunFailure) -> str:
    match = _MODULE.search(failure.error)
    module = (match[1] or match[2] or "").partition(".")[0] if match else ""
    spec = failure.job.spec.environment
    python = spec.python or failure.job.origin.interpreter or "python"
    if spec.requirements:
        return (
            f"add the package that provides {module or 'it'} to {spec.requirements}, then: fairway submit --like {failure.name}"
        )
    return (
        f"install the package that provides it ({python} -m pip install {module or 'NAME'}), choose an interpreter that has it "
        f"(--python PATH) or a list of packages (--requirements FILE, environment.requirements in a document), "
        f"then: {failure.again()}"
    )


def _memory(failure: RunFailure) -> str:
    role = failure.task.key.role if failure.task is not None else "worker"
    message = failure.job.outcome.message if failure.job.outcome is not None else ""
    match = _HELD.search(message)
    if match:
        value = sensible(max(_bytes(match[1]), _bytes(match[2])) * _MARGIN)
        command = failure.changed(f"--memory-limit {value}")
        return f"use a smaller batch, or raise roles.{role}.limits.memory in the document, as this does: {command}"
    requested = failure.task.need.memory if failure.task is not None else 0
    value = sensible(requested * _MARGIN) if requested else ""
    command = failure.changed(f"--memory {value or 'SIZE'}")
    return f"use a smaller batch or fewer workers, or ask for more (roles.{role}.resources.memory): {command}"


def _gpu_memory(failure: RunFailure) -> str:
    return f"use a smaller batch, accumulate gradients or ask for a larger GPU (--gpus TYPE:1), then: {failure.again()}"


def _timeout(failure: RunFailure) -> str:
    timeout = failure.job.spec.timeout
    longer = quantity.show_seconds(2 * quantity.seconds(timeout)) if timeout is not None else "TIME"
    saved = failure.job.progress.checkpoint_step
    hint = f"`timeout:` in the document or --timeout sets the maximum run time: {failure.changed(f'--timeout {longer}')}"
    return (
        f"fairway resume {failure.name} goes on from step {saved:,} with the same timeout; {hint}" if saved is not None else hint
    )


def _world(failure: RunFailure) -> str:
    replicas = sum(role.replicas.max for role in failure.job.spec.roles.values())
    workers = _expected_workers(failure.error, replicas)
    command = failure.changed(f"--workers {workers}") if workers else failure.again()
    return (
        f"the program or its launcher expects another number of ranks than the run has ({replicas} x processes): make `replicas` "
        f"(--workers), `processes` (--processes) and the launcher's --nnodes and --nproc-per-node agree, then: {command}"
    )


def _expected_workers(error: str, replicas: int) -> int:
    """Return the number of workers that gives the number of ranks in the error; 0 if the error does not contain it."""
    match = _EXPECTED.search(error)
    if match is None:
        return 0
    ranks, expected_ranks = int(match[1]), int(match[2])
    ranks_per_worker = ranks // replicas if replicas and ranks % replicas == 0 else 0
    return (
        expected_ranks // ranks_per_worker
        if ranks_per_worker and expected_ranks and expected_ranks % ranks_per_worker == 0 and expected_ranks != ranks
        else 0
    )


def _port(failure: RunFailure) -> str:
    return (
        "another process uses the port (`ss -ltnp` shows it): stop it, or use the port that Fairway gives the task "
        f"($MASTER_PORT, or the task's own in $FAIRWAY_PEERS), then: {failure.again()}"
    )


def _disk(failure: RunFailure) -> str:
    return (
        f"free space (`df -h` shows where; `fairway delete RUN` removes old runs with their checkpoints), then: "
        f"fairway resume {failure.name}"
    )


def _nan(failure: RunFailure) -> str:
    return f"the numbers became NaN: lower the learning rate, clip gradients or check the data, then: {failure.again()}"


def _flag(failure: RunFailure) -> str:
    command = _given(failure)
    if not command:
        return f"the program does not accept an argument: correct the script, then: {failure.again()}"
    wrong, similar = _misspelt(failure, command)
    if similar:
        return (
            f"{wrong} is not an argument of the program, {similar} is: {failure.changed(f'-- {_with(command, wrong, similar)}')}"
        )
    return (
        f"the program does not accept an argument (it accepts: {_help(failure)}): correct it in this command, and in "
        f"`command:` of the document: {failure.changed(f'-- {shlex.join(command)}')}"
    )


def _misspelt(failure: RunFailure, command: tuple[str, ...]) -> tuple[str, str]:
    """Return the unknown option of the command and the similar one that the program has; empty if none is similar."""
    refused = _REFUSED.search(failure.error)
    usage = failure.exit.tail.rpartition("usage:")[2]
    options = set(_OPTION.findall(usage.replace(failure.error, "")))
    words = {word.partition("=")[0] for word in command}
    for wrong in _OPTION.findall(refused[1]) if refused else ():
        similar = nearest(wrong, options - {wrong})
        if wrong in words and similar:
            return wrong, similar
    return "", ""


def _with(command: tuple[str, ...], wrong: str, meant: str) -> str:
    """Return the command with one option replaced by another."""
    return shlex.join(meant + word[len(wrong) :] if word == wrong or word.startswith(f"{wrong}=") else word for word in command)


def _given(failure: RunFailure) -> tuple[str, ...]:
    role = failure.task.key.role if failure.task is not None else ""
    return failure.job.spec.roles[role].command if role in failure.job.spec.roles else ()


def _help(failure: RunFailure) -> str:
    command = _given(failure)
    script = next((position for position, word in enumerate(command) if word.endswith(".py")), None)
    return " ".join(command[: script + 1]) + " --help" if script is not None else "see the log"


def _killed(failure: RunFailure) -> str:
    return (
        "it was killed from outside (`dmesg` shows whether the kernel did so for lack of memory: then request more with "
        f"--memory); continue with: fairway resume {failure.name}"
    )


def _crash(failure: RunFailure) -> str:
    return (
        f"it crashed in native code; the stack of each Python thread is in the log (fairway logs {failure.name} --tail 60): "
        f"repair or update the library named there, then: {failure.again()}"
    )


def _file(failure: RunFailure) -> str:
    match = _PATH.search(failure.error)
    path = match[1] if match else "the file"
    folder = failure.job.origin.folder or "the folder of the run"
    argument = next((word for word in _given(failure)[1:] if path in (word, posixpath.join(folder, word))), "")
    if not failure.snapshot and argument:
        return f"the command names {argument}, and {folder} has no such file: correct it and run the command again"
    if not failure.snapshot:
        return f"{path} does not exist, relative to {folder}: correct the path, then: {failure.again()}"
    return (
        f"{path} is not in the snapshot of {folder} (files ignored by git are excluded): declare it as an input (`data:`, "
        f"--data NAME=PATH) or run in the folder: {failure.changed('--in-place')}"
    )


def _requeue(failure: RunFailure) -> str:
    return (
        f"it exits with code 75 without progress: report steps, or save checkpoints and resume from them, then: {failure.again()}"
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
"""The first row that matches applies."""


def sensible(count: float) -> str:
    """Return the next round quantity of at least `count` bytes: `768Mi`, `3Gi`."""
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
