"""Restart decisions on scripted histories: how each attempt ended, and what must follow."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from fairway.state.job import JobKey
from fairway.state.phase import JobPhase, TaskPhase
from fairway.state.task import TaskExit
from fairway.testing.planning_simulation import PlanningSimulation

AGAIN = "again"
BUG = TaskExit(1, error="ValueError: bad label", traceback_digest="bug")
OTHER = TaskExit(1, error="KeyError: 'lr'", traceback_digest="other")
UNDER_TORCHRUN = TaskExit(1, error="RuntimeError: shape mismatch", error_rank=1, error_code=1, traceback_digest="shape")
KILLED = TaskExit(None, 9)
RANK_KILLED = TaskExit(1, error="killed by SIGKILL", error_rank=1, error_signal=9, tail="ChildFailedError: \n====")
SEGFAULT = TaskExit(None, 11)
MEMORY = TaskExit(None, 9, out_of_memory=True)
ALLOCATION = TaskExit(1, error="MemoryError", traceback_digest="alloc")
GPU_MEMORY = TaskExit(1, error="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", traceback_digest="cuda")
GPU_MEMORY_ELSEWHERE = TaskExit(
    1, error="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB", traceback_digest="x"
)
IMPORT = TaskExit(1, error="ModuleNotFoundError: No module named 'einops'", traceback_digest="import")
IMPORT_OTHER = TaskExit(1, error="ModuleNotFoundError: No module named 'timm'", traceback_digest="import-2")
SYNTAX = TaskExit(1, error="SyntaxError: '(' was never closed", traceback_digest="syntax")
USAGE = TaskExit(2, error="train.py: error: unrecognized arguments: --bad", traceback_digest="usage")
RANK_USAGE = TaskExit(1, error="train.py: error: unrecognized arguments: --bad", error_rank=0, error_code=2)
PEER = TaskExit(1, error="RuntimeError: Connection closed by peer [127.0.0.1]:36269", traceback_digest="peer")
REQUEUE = TaskExit(75)
DISRUPTED = TaskExit(None, 15, disrupted="its node was lost")
SILENT = TaskExit(1)


@dataclass
class Attempt:
    """One attempt: how it ended, how long it ran, what it reported and saved, and what must follow."""

    exit: TaskExit | None
    then: str
    seconds: float = 60.0
    step: int | None = None
    checkpoint: int | None = None
    printed: str = ""


@dataclass
class History:
    """A run and its attempts."""

    name: str
    attempts: list[Attempt]
    restart: dict[str, object] = field(default_factory=dict)


def same(exit_: TaskExit | None, *then: str, **more: float) -> list[Attempt]:
    return [Attempt(exit_, each, **more) for each in then]  # type: ignore[arg-type]


def steps(exit_: TaskExit, *pairs: tuple[int, str]) -> list[Attempt]:
    return [Attempt(exit_, then, step=step) for step, then in pairs]


HISTORIES = [
    History("the same bug at the same step", steps(BUG, (10, AGAIN), (10, "SameError"))),
    History("the same bug at a lower step", steps(BUG, (90, AGAIN), (60, "SameError"))),
    History("the same bug at a higher step is bad luck", steps(BUG, (10, AGAIN), (20, AGAIN), (30, AGAIN))),
    History("higher than the time before is not higher than ever", steps(BUG, (90, AGAIN), (100, AGAIN), (95, "SameError"))),
    History("another bug at the same step", [*steps(BUG, (10, AGAIN)), *steps(OTHER, (10, AGAIN)), *steps(BUG, (10, AGAIN))]),
    History(
        "a newer checkpoint is progress",
        [Attempt(BUG, AGAIN, checkpoint=100), Attempt(BUG, AGAIN, checkpoint=200), Attempt(BUG, "SameError", checkpoint=200)],
    ),
    History(
        "a checkpoint counts though the step reported is lower",
        [Attempt(BUG, AGAIN, step=100, checkpoint=50), Attempt(BUG, AGAIN, step=90, checkpoint=80)],
    ),
    History("nothing is known and it ends as soon as before", same(BUG, AGAIN, "SameError", seconds=60)),
    History(
        "nothing is known and it ran twice as long",
        [Attempt(BUG, AGAIN, 60), Attempt(BUG, AGAIN, 125), Attempt(BUG, "SameError", 130)],
    ),
    History("a little longer is no progress", [Attempt(BUG, AGAIN, 60), Attempt(BUG, "SameError", 100)]),
    History("twice as long within the noise is no progress", [Attempt(BUG, AGAIN, 0.2), Attempt(BUG, "SameError", 0.5)]),
    History(
        "twice as long does not count where steps are known", [Attempt(BUG, AGAIN, 60, 10), Attempt(BUG, "SameError", 600, 10)]
    ),
    History(
        "what it printed never counts",
        [Attempt(BUG, AGAIN, printed="x"), Attempt(BUG, "SameError", printed="a much longer log" * 100)],
    ),
    History("the same bug of a rank under torchrun", steps(UNDER_TORCHRUN, (5, AGAIN), (5, "SameError"))),
    History("a killed process is started to the limit", same(KILLED, AGAIN, AGAIN, AGAIN, "Signal")),
    History("a killed rank under torchrun is a kill", same(RANK_KILLED, AGAIN, AGAIN, AGAIN, "Signal")),
    History("a segfault is started to the limit", same(SEGFAULT, AGAIN, AGAIN, AGAIN, "Signal")),
    History("a lost task is started to the limit", same(None, AGAIN, AGAIN, AGAIN, "Lost")),
    History("memory runs out twice", same(MEMORY, AGAIN, "OutOfMemory")),
    History(
        "memory runs out later each time",
        [Attempt(MEMORY, AGAIN, step=10), Attempt(MEMORY, AGAIN, step=20), Attempt(MEMORY, "OutOfMemory", step=20)],
    ),
    History("an allocation fails twice", same(ALLOCATION, AGAIN, "OutOfMemory")),
    History("GPU memory runs out twice, wherever", [*same(GPU_MEMORY, AGAIN), *same(GPU_MEMORY_ELSEWHERE, "GpuOutOfMemory")]),
    History("GPU memory runs out later each time", steps(GPU_MEMORY, (10, AGAIN), (20, AGAIN), (30, AGAIN))),
    History("a missing module is missing twice", same(IMPORT, AGAIN, "MissingModule")),
    History(
        "a module that is missing later is missing all the same",
        [Attempt(IMPORT, AGAIN, step=10), Attempt(IMPORT, "MissingModule", step=20)],
    ),
    History("two missing modules", [*same(IMPORT, AGAIN), *same(IMPORT_OTHER, AGAIN)]),
    History("a program that cannot be read", same(SYNTAX, AGAIN, "BadProgram")),
    History("a bad flag", same(USAGE, "CannotRun")),
    History("a bad flag of a rank under torchrun", same(RANK_USAGE, "CannotRun")),
    History("a program that is not there", same(TaskExit(127), "CannotRun")),
    History("a lost peer is not its own mistake", steps(PEER, (10, AGAIN), (10, AGAIN), (10, AGAIN), (10, "PeerFailed"))),
    History(
        "a disruption between does not make it another mistake",
        [*steps(BUG, (10, AGAIN)), Attempt(DISRUPTED, AGAIN, step=10), *steps(BUG, (10, "SameError"))],
    ),
    History("disruptions cost nothing", [*same(DISRUPTED, *[AGAIN] * 20)]),
    History("an exit without a word is started to the limit", same(SILENT, AGAIN, AGAIN, AGAIN, "Error")),
    History("no restart is allowed", same(KILLED, "Signal"), {"max": 0}),
    History("requests to start again without progress end", same(REQUEUE, *[AGAIN] * 10, "Requeue", seconds=0.1)),
    History(
        "requests to start again at the same step end", [*steps(REQUEUE, *[(5, AGAIN)] * 10), *steps(REQUEUE, (5, "Requeue"))]
    ),
    History("requests to start again with progress never end", steps(REQUEUE, *[(step, AGAIN) for step in range(40)])),
    History("long attempts that ask to start again never end", same(REQUEUE, *[AGAIN] * 40, seconds=3600)),
    History(
        "progress forgives earlier requests",
        [*steps(REQUEUE, *[(5, AGAIN)] * 9), *steps(REQUEUE, (6, AGAIN)), *steps(REQUEUE, *[(6, AGAIN)] * 9)],
    ),
]


def play(history: History) -> list[str]:
    """Return what the plan does after each attempt."""
    world = PlanningSimulation()
    role = {"replicas": {"min": 1, "max": 1}, "command": ["x"]}
    key = world.submit("mnist-1", {"roles": {"worker": role}, "restart": history.restart})
    return [_after(world, key, attempt) for attempt in history.attempts]


def _after(world: PlanningSimulation, key: JobKey, attempt: Attempt) -> str:
    (task,) = world.tasks(key, alive=True)
    world.now += attempt.seconds
    if attempt.step is not None:
        world.report(key, attempt.step)
    if attempt.checkpoint is not None:
        world.checkpoint(key, attempt.checkpoint)
    ended = attempt.exit
    world.end(task, TaskPhase.LOST if ended is None else TaskPhase.FAILED, ended)
    world.turn()
    job = world.job(key)
    if job.phase is JobPhase.FAILED:
        assert job.outcome is not None
        return job.outcome.reason
    _wait_out(world, key)
    assert world.job(key).phase is JobPhase.RUNNING
    return AGAIN


def _wait_out(world: PlanningSimulation, key: JobKey) -> float:
    """Let the back-off pass; return how long it was."""
    wait = max(0.0, (world.job(key).not_before or 0.0) - world.now)
    world.pass_time(wait)
    return wait


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)
def test_what_follows_each_attempt(history: History) -> None:
    assert play(history) == [attempt.then for attempt in history.attempts]


def test_there_are_enough_histories_and_every_one_is_another() -> None:
    assert len({history.name for history in HISTORIES}) == len(HISTORIES) >= 20


def test_requests_to_start_again_without_progress_wait_ever_longer() -> None:
    world = PlanningSimulation()
    key = world.submit("mnist-1", {"roles": {"worker": {"command": ["x"]}}})
    waits = []
    for _ in range(5):
        (task,) = world.tasks(key, alive=True)
        world.now += 0.1
        world.end(task, TaskPhase.FAILED, REQUEUE)
        world.turn()
        waits.append(_wait_out(world, key))
    assert waits == pytest.approx([0, 1, 2, 4, 8])
