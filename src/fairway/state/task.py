"""A task: one replica of a role of a run, at one attempt."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairway.state.job import JobKey, RunEviction
from fairway.state.phase import TaskPhase


@dataclass(frozen=True, slots=True, order=True)
class TaskKey:
    """Identifies one attempt of one task: (run, role, index, attempt)."""

    namespace: str
    job: str
    role: str
    index: int
    attempt: int

    @property
    def run(self) -> JobKey:
        """The run to which the task belongs."""
        return JobKey(self.namespace, self.job)

    @property
    def task(self) -> str:
        """`worker-0`: the task's name within its run."""
        return f"{self.role}-{self.index}"

    def __str__(self) -> str:
        """`default/mnist-7/worker-0#2`: used in messages and as the key in a store."""
        return f"{self.namespace}/{self.job}/{self.role}-{self.index}#{self.attempt}"


@dataclass(frozen=True, slots=True)
class TaskNeed:
    """Resources that a task takes from a node while it is placed: numbers, resolved from the document."""

    cpu: float = 0.0
    memory: int = 0
    gpus: int = 0
    """Number of devices."""
    gpu_milli: int = 1000
    """Thousandths of each device; less than 1000 means that devices are shared."""
    gpu_memory: int = 0
    """Bytes of memory on each device: reserved on a shared device, the minimum that a whole one must have."""
    gpu_type: tuple[str, ...] = ()
    other: dict[str, int] = field(default_factory=dict)

    @property
    def gpu(self) -> float:
        """Number of devices, with a share counted as a fraction."""
        return self.gpus * self.gpu_milli / 1000


@dataclass(frozen=True, slots=True)
class TaskExit:
    """How a task's processes ended, as recorded by the supervisor."""

    code: int | None = None
    """Exit code of the process that decided the outcome; None if it was ended by a signal, or if the code is not known."""
    signal: int | None = None
    rank: int = 0
    """Local rank of the process that decided the outcome."""
    out_of_memory: bool = False
    by_us: bool = False
    """Whether the engine sent the signal."""
    tail: str = ""
    """The last lines of output."""
    traceback_digest: str = ""
    """Digest of the frames of a Python traceback, used to recognise the same error."""
    reached_step: int | None = None
    world: int = 0
    """Size of the largest world that a launcher inside the task set up; 0 if there was none."""
    leads: bool = False
    """Whether rank 0 of that world ran in this task."""
    error: str = ""
    """The exception raised by the failed rank, in one line: `RuntimeError: shape mismatch`. Empty if not known."""
    error_rank: int | None = None
    """Rank of the failed process within the run; None if not known."""
    error_code: int | None = None
    """Exit code of that rank, if a launcher reported it."""
    error_signal: int | None = None
    """Signal that ended that rank, if a launcher reported it."""
    disrupted: str = ""
    """External cause of its end, in words: its node was lost, or the kubelet rejected it. Such an end is not the run's fault."""
    interrupted: bool = False
    """Whether it ended because the user interrupted it (Ctrl-C)."""


@dataclass(frozen=True, slots=True)
class Task:
    """State of one task."""

    key: TaskKey
    phase: TaskPhase = TaskPhase.PENDING
    need: TaskNeed = TaskNeed()
    processes: int = 1
    """Number of processes that the engine starts for it."""
    slots: int = 1
    """Number of processes that its own launcher (torchrun, mpirun) may start."""
    ready: bool = False
    """Whether code and environment are prepared, so that it could start immediately."""
    node: str = ""
    devices: tuple[str, ...] = ()
    address: str = ""
    """`host:port`, once the port is bound."""
    created: float = 0.0
    started: float | None = None
    finished: float | None = None
    exit: TaskExit | None = None
    message: str = ""
    """What it is doing, or why it ended, in words."""
    evicting_since: float | None = None
    """Time at which the engine was instructed to stop it."""
    leave: RunEviction | None = None
    """Set when an external scheduler, which Fairway does not control, requires its run to make room."""

    @property
    def shares_gpus(self) -> bool:
        """Whether it uses only part of its devices."""
        return self.need.gpus > 0 and self.need.gpu_milli < 1000


@dataclass(frozen=True, slots=True)
class TaskReport:
    """An engine's observation of a task, to be folded into the state. None means that a value is unchanged."""

    key: TaskKey
    phase: TaskPhase
    ready: bool | None = None
    address: str | None = None
    started: float | None = None
    finished: float | None = None
    exit: TaskExit | None = None
    message: str | None = None
    node: str | None = None
    """Node of the task; reported only by engines that do not use Fairway's placement."""
    devices: tuple[str, ...] | None = None
    leave: RunEviction | None = None
