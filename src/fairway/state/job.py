"""A job: one run of a training job document."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairway.spec.job import JobSpec
from fairway.state.activity import Stall
from fairway.state.metric import Summary
from fairway.state.phase import Intent, JobPhase


@dataclass(frozen=True, slots=True, order=True)
class JobKey:
    """Names a run: `default/mnist-7`."""

    namespace: str
    name: str

    def __hash__(self) -> int:
        """By the name alone: planners look runs up all the time, and few namesakes live in two namespaces."""
        return hash(self.name)

    def __str__(self) -> str:
        """`default/mnist-7`."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Conditions:
    """Under which conditions the caller's shell runs programs. They hold for the tasks of the run too."""

    nice: int = 0
    umask: int | None = None
    """None: as the engine has it."""
    affinity: tuple[int, ...] = ()
    """CPUs; empty: any."""
    limits: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By name, as in `RLIMIT_NOFILE`: soft and hard, -1 for none."""
    devices: tuple[str, ...] | None = None
    """`CUDA_VISIBLE_DEVICES`: the only GPUs that the run may use, by index or UUID. None: any."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Who asked, from where, and with what."""

    user: str = ""
    folder: str = ""
    """Where the command was typed; relative paths of the document start here."""
    interpreter: str = ""
    """The caller's Python."""
    code_digest: str = ""
    """Names the content of the code: of the snapshot, or of the folder as it was for an in-place run."""
    terminal: bool = False
    """Whether rank 0 gets a terminal of its own, because a person sits at the other end."""
    keeps_environment: bool = False
    """Whether the caller's environment was kept beside the run, for an in-place run."""
    stdin: str = ""
    """Where the caller hands out its standard input while it watches the run; empty: the run has none."""
    starters: dict[str, str] = field(default_factory=dict)
    """By role: the launcher (`units.programs.Starter`) that a script file of the role's command calls."""
    cautions: tuple[str, ...] = ()
    """What its author should know of how its launchers work together."""
    conditions: Conditions | None = None
    """Those of the caller; None: those of the engine."""
    commit: str = ""
    """The commit that the folder of the code was at when it was copied; empty when it is not known."""
    left_out: tuple[str, ...] = ()
    """Paths that the ignore files of the folder kept out of the copy, folders with a slash: the first of them."""
    stderr_apart: bool = False
    """Whether the caller's standard error leads to another place than its standard output."""
    spread: bool = False
    """Whether its tasks have machines of their own, as on a cluster, so that nothing is folded into one task."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a run waits, and what would help."""

    reason: str
    """A word for programs: `cpu`, `memory`, `gpu`, `backoff`, `preparing`."""
    message: str
    what_would_help: str = ""
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended, or how its last attempt did."""

    reason: str
    """A word for programs: `Completed`, `StopCondition`, `Error`, `OutOfMemory`, `Timeout`, `Lost`, `StoppedByUser` ..."""
    message: str = ""
    task: str = ""
    """The task whose end was the cause."""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """From where the current attempt goes on."""

    step: int | None = None
    """The checkpoint's step; None when there was none and it began at 0."""
    lost_seconds: float | None = None
    """Work done after that checkpoint and lost."""
    lost_steps: int | None = None
    """The same in steps, where they were reported."""


@dataclass(frozen=True, slots=True)
class Trail:
    """What the attempts before came to, so that progress is known from standing still."""

    step: int | None = None
    """The highest step that any of them reported."""
    checkpoint: int | None = None
    """The newest checkpoint that any of them left."""
    seconds: float | None = None
    """How long the last one ran."""
    requeues: int = 0
    """How often in a row it asked to be started again (exit 75) without progress."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """A run that makes room: it saves, leaves, and waits again."""

    cause: str
    """A word for programs: `priority`, `reclaim`, `time-slice`, `shrink`, `grow`, `move`."""
    message: str
    """For whom, and by what right."""
    since: float
    sizes: dict[str, int] = field(default_factory=dict)
    """Replicas a role, at the most, when it starts again; empty: as the document says."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What rank 0 reported last."""

    step: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    time: float | None = None
    steps_per_second: float | None = None
    checkpoint_step: int | None = None
    """The newest finished checkpoint."""
    checkpoint_time: float | None = None
    speaker: str = ""
    """The task whose reports these are: the leader, or the first that reported where the framework deals out the ranks."""
    summaries: dict[str, Summary] = field(default_factory=dict)
    """Each metric over the run. Runs of an earlier version have none."""

    @property
    def last(self) -> dict[str, float]:
        """The last value of each metric by step, then by time; `metrics` has the one that came last."""
        return {name: self.summaries[name].last if name in self.summaries else value for name, value in self.metrics.items()}


@dataclass(frozen=True, slots=True)
class Job:
    """What is known of one run."""

    key: JobKey
    series: str
    number: int
    spec: JobSpec
    origin: Origin = Origin()
    labels: dict[str, str] = field(default_factory=dict)
    intent: Intent = Intent.RUN
    phase: JobPhase = JobPhase.PENDING
    attempt: int = 0
    """Rises when the gang starts again."""
    restarts: int = 0
    """Failures forgiven so far, out of `spec.restart.max`."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Replicas a role has now; elastic roles change it. Empty before the first placement."""
    not_before: float | None = None
    """Back-off: no start before this."""
    created: float = 0.0
    started: float | None = None
    finished: float | None = None
    hold: Hold | None = None
    outcome: Outcome | None = None
    resume: Resume | None = None
    progress: Progress = Progress()
    last_failure: str = ""
    """Names the last failure; the same again without progress is a mistake of the program."""
    trail: Trail = Trail()
    """What the attempts before came to."""
    memory_factor: float = 1.0
    """Memory asked for is multiplied by this after an out-of-memory end, once."""
    leaving: Leaving | None = None
    """Set while it makes room for somebody else."""
    evictions: int = 0
    """How often it made room so far."""
    ending: JobPhase | None = None
    """Decided: it ends like this as soon as its tasks are over. `outcome` says why."""
    nudged: float | None = None
    """When its tasks were asked to end by themselves."""
    stall: Stall | None = None
    """Set while it seems to hang."""
    not_numbers: dict[str, int | None] = field(default_factory=dict)
    """Metrics that were NaN, each with the step at which that was seen first."""
    logs_removed: dict[str, int] = field(default_factory=dict)
    """Bytes of output that were removed because there was too much, from the beginning, by process: `worker-0`, `worker-0.1`."""
    logs_gone: bool = False
    """Whether its logs were removed because their time was up."""
    deleting: bool = False
    """Forget everything about it once it is over."""
