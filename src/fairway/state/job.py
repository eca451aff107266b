"""A job: one run of a training job document."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairway.spec.job import JobSpec
from fairway.state.metric import MetricSummary
from fairway.state.phase import JobPhase, RunIntent
from fairway.state.stall import RunStall


@dataclass(frozen=True, slots=True, order=True)
class JobKey:
    """Identifies a run: `default/mnist-7`."""

    namespace: str
    name: str

    def __hash__(self) -> int:
        """Hash the name only: planners look up runs all the time, and few runs in different namespaces share a name."""
        return hash(self.name)

    def __str__(self) -> str:
        """`default/mnist-7`."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ShellSettings:
    """Process settings of the caller's shell, which the tasks of the run inherit."""

    nice: int = 0
    umask: int | None = None
    """None: that of the engine."""
    affinity: tuple[int, ...] = ()
    """CPUs; empty: any."""
    limits: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Resource limits by name, as in `RLIMIT_NOFILE`: soft and hard, -1 for none."""
    devices: tuple[str, ...] | None = None
    """`CUDA_VISIBLE_DEVICES`: the only GPUs that the run may use, by index or UUID. None: any."""


@dataclass(frozen=True, slots=True)
class SubmissionOrigin:
    """Origin of a submission: its user, folder and environment."""

    user: str = ""
    folder: str = ""
    """Folder in which the command was run; relative paths of the document start here."""
    interpreter: str = ""
    """Python interpreter of the caller."""
    code_digest: str = ""
    """Digest of the code: of the snapshot, or, for an in-place run, of the folder at submission."""
    terminal: bool = False
    """Whether rank 0 gets a terminal of its own, because the run is interactive."""
    keeps_environment: bool = False
    """Whether the caller's environment was stored with the run, for an in-place run."""
    stdin: str = ""
    """Address where the caller serves its standard input while it follows the run; empty: the run has no standard input."""
    starters: dict[str, str] = field(default_factory=dict)
    """The launcher (`units.programs.Starter`) called by a script file of a role's command, by role."""
    cautions: tuple[str, ...] = ()
    """Warnings for the user about how the launchers of the run work together."""
    conditions: ShellSettings | None = None
    """Process settings of the caller; None: those of the engine."""
    commit: str = ""
    """Commit of the code folder when it was copied; empty if not known."""
    left_out: tuple[str, ...] = ()
    """The first paths that ignore files kept out of the copy; folders end with a slash."""
    stderr_apart: bool = False
    """Whether the caller's standard error goes elsewhere than its standard output."""
    spread: bool = False
    """Whether each task has a machine of its own, as on a cluster, so that no roles are folded into one task."""


@dataclass(frozen=True, slots=True)
class WaitReason:
    """Why a run waits, and what would let it start."""

    reason: str
    """Machine-readable reason: `cpu`, `memory`, `gpu`, `backoff`, `preparing`."""
    message: str
    what_would_help: str = ""
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended, or how its last attempt did."""

    reason: str
    """Machine-readable reason: `Completed`, `StopCondition`, `Error`, `OutOfMemory`, `Timeout`, `Lost`, `StoppedByUser` ..."""
    message: str = ""
    task: str = ""
    """The task whose end caused the outcome."""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The checkpoint from which the current attempt resumed."""

    step: int | None = None
    """Step of the checkpoint; None if there was none and the attempt started at 0."""
    lost_seconds: float | None = None
    """Seconds of work after that checkpoint, which were lost."""
    lost_steps: int | None = None
    """The same in steps, if steps were reported."""


@dataclass(frozen=True, slots=True)
class AttemptHistory:
    """Summary of the previous attempts, used to detect whether a run makes progress."""

    step: int | None = None
    """Highest step that any of them reported."""
    checkpoint: int | None = None
    """Newest checkpoint of any of them."""
    seconds: float | None = None
    """Run time of the last one."""
    requeues: int = 0
    """How many times in a row the run requested a restart (exit 75) without progress."""


@dataclass(frozen=True, slots=True)
class RunEviction:
    """A run that makes room for others: it saves a checkpoint, stops, and waits again."""

    cause: str
    """Machine-readable cause: `priority`, `reclaim`, `time-slice`, `shrink`, `grow`, `move`."""
    message: str
    """The run that needs the room, and the rule that allows it."""
    since: float
    sizes: dict[str, int] = field(default_factory=dict)
    """Maximum number of replicas per role at the next start; empty: as in the document."""


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Latest progress reported by rank 0."""

    step: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    time: float | None = None
    steps_per_second: float | None = None
    checkpoint_step: int | None = None
    """Step of the newest complete checkpoint."""
    checkpoint_time: float | None = None
    speaker: str = ""
    """The task whose reports count: the leader, or, if the framework assigns the ranks, the first task that reported."""
    summaries: dict[str, MetricSummary] = field(default_factory=dict)
    """Summary of each metric over the run. Runs of an earlier version have none."""

    @property
    def last(self) -> dict[str, float]:
        """The last value of each metric by step, then by time; `metrics` has the value that arrived last."""
        return {name: self.summaries[name].last if name in self.summaries else value for name, value in self.metrics.items()}


@dataclass(frozen=True, slots=True)
class JobState:
    """State of one run."""

    key: JobKey
    series: str
    number: int
    spec: JobSpec
    origin: SubmissionOrigin = SubmissionOrigin()
    labels: dict[str, str] = field(default_factory=dict)
    intent: RunIntent = RunIntent.RUN
    phase: JobPhase = JobPhase.PENDING
    attempt: int = 0
    """Incremented when the gang is restarted."""
    restarts: int = 0
    """Number of restarts after failures, out of `spec.restart.max`."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Current number of replicas per role; it changes for elastic roles. Empty before the first placement."""
    not_before: float | None = None
    """End of the back-off: the run does not start before this time."""
    created: float = 0.0
    started: float | None = None
    finished: float | None = None
    hold: WaitReason | None = None
    outcome: RunOutcome | None = None
    resume: ResumePoint | None = None
    progress: RunProgress = RunProgress()
    last_failure: str = ""
    """Fingerprint of the last failure. The same failure again without progress is treated as a bug in the program."""
    trail: AttemptHistory = AttemptHistory()
    """Summary of the previous attempts, used to detect whether a run makes progress."""
    memory_factor: float = 1.0
    """Factor applied to the requested memory; raised once, after an out-of-memory failure."""
    leaving: RunEviction | None = None
    """Set while the run makes room for another run."""
    evictions: int = 0
    """Number of times the run has made room."""
    ending: JobPhase | None = None
    """The final phase, once decided; the run enters it when its tasks are over. `outcome` has the reason."""
    nudged: float | None = None
    """Time at which its tasks were requested to stop on their own."""
    stall: RunStall | None = None
    """Set while the run seems to hang."""
    not_numbers: dict[str, int | None] = field(default_factory=dict)
    """Metrics that were NaN, each with the step at which NaN was first seen."""
    logs_removed: dict[str, int] = field(default_factory=dict)
    """Bytes of output removed from the beginning because of the size limit, by process: `worker-0`, `worker-0.1`."""
    logs_gone: bool = False
    """Whether its logs were removed because their retention time ended."""
    deleting: bool = False
    """Delete all data of the run once it is over."""
