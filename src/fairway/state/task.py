"""A task: one replica of a role of a run, at one attempt."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairway.state.job import JobKey, Leaving
from fairway.state.phase import TaskPhase


@dataclass(frozen=True, slots=True, order=True)
class TaskKey:
    """Names one attempt of one task: (run, role, index, attempt)."""

    namespace: str
    job: str
    role: str
    index: int
    attempt: int

    @property
    def run(self) -> JobKey:
        """The run it belongs to."""
        return JobKey(self.namespace, self.job)

    @property
    def task(self) -> str:
        """`worker-0`: the task's name within its run."""
        return f"{self.role}-{self.index}"

    def __str__(self) -> str:
        """`default/mnist-7/worker-0#2`: for messages and as the key in a store."""
        return f"{self.namespace}/{self.job}/{self.role}-{self.index}#{self.attempt}"


@dataclass(frozen=True, slots=True)
class Need:
    """What a task takes from a node while it is placed; numbers, resolved from the document."""

    cpu: float = 0.0
    memory: int = 0
    gpus: int = 0
    """Devices."""
    gpu_milli: int = 1000
    """Thousandths of each device; fewer than all share it."""
    gpu_memory: int = 0
    """Bytes of each: taken from a shared device, the least that a whole one must have."""
    gpu_type: tuple[str, ...] = ()
    other: dict[str, int] = field(default_factory=dict)

    @property
    def gpu(self) -> float:
        """Devices, a share of one counted as the part that it is."""
        return self.gpus * self.gpu_milli / 1000


@dataclass(frozen=True, slots=True)
class Exit:
    """How a task's processes ended, as its supervisor recorded it."""

    code: int | None = None
    """Exit code of the process that decided; None when a signal ended it, or when nobody knows."""
    signal: int | None = None
    rank: int = 0
    """Which local process decided."""
    out_of_memory: bool = False
    by_us: bool = False
    """Whether the engine sent the signal."""
    tail: str = ""
    """The last lines it printed."""
    traceback_digest: str = ""
    """Names a Python traceback by its frames, so that the same mistake is recognised."""
    reached_step: int | None = None
    world: int = 0
    """Ranks of the largest world that a launcher inside the task told its processes of; 0 when none was seen."""
    leads: bool = False
    """Whether rank 0 of that world ran in this task."""
    error: str = ""
    """What the rank that failed raised, in one line: `RuntimeError: shape mismatch`. Empty when it is not known."""
    error_rank: int | None = None
    """That rank, among all of the run; None when it is not known."""
    error_code: int | None = None
    """With what that rank exited, where a launcher between told it."""
    error_signal: int | None = None
    """Which signal ended that rank, where a launcher between told it."""
    disrupted: str = ""
    """Who ended it from outside, in words: its node was lost, the kubelet refused it. Not the run's fault."""
    interrupted: bool = False
    """Whether a person interrupted it (Ctrl-C) and it ended because of that."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is known of one task."""

    key: TaskKey
    phase: TaskPhase = TaskPhase.PENDING
    need: Need = Need()
    processes: int = 1
    """How many processes the engine starts for it."""
    slots: int = 1
    """How many processes its own launcher (torchrun, mpirun) may start for it."""
    ready: bool = False
    """Whether code and environment are prepared, so that it could start at once."""
    node: str = ""
    devices: tuple[str, ...] = ()
    address: str = ""
    """`host:port`, once bound."""
    created: float = 0.0
    started: float | None = None
    finished: float | None = None
    exit: Exit | None = None
    message: str = ""
    """What it is doing or why it ended, in words."""
    evicting_since: float | None = None
    """When the engine was told to end it."""
    leave: Leaving | None = None
    """Its run must make room, says a scheduler that is not ours to ask."""

    @property
    def shares_gpus(self) -> bool:
        """Whether it leaves part of its devices to others."""
        return self.need.gpus > 0 and self.need.gpu_milli < 1000


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What an engine sees of a task: facts, to be folded into the state. None means nothing new on that."""

    key: TaskKey
    phase: TaskPhase
    ready: bool | None = None
    address: str | None = None
    started: float | None = None
    finished: float | None = None
    exit: Exit | None = None
    message: str | None = None
    node: str | None = None
    """Where it sits; told only by engines that do not place."""
    devices: tuple[str, ...] | None = None
    leave: Leaving | None = None
