"""The training job document: what is asked, one type a field."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from fairway.spec import condition
from fairway.spec.model import Bytes, Duration, LinePattern, Name, Retention, SpecModel, StopCondition, VariableName
from fairway.spec.resources import Placement, Resources


class Framework(StrEnum):
    """Which peers' language the tasks speak."""

    AUTO = "auto"
    PYTORCH = "pytorch"
    TENSORFLOW = "tensorflow"
    JAX = "jax"
    MPI = "mpi"
    MXNET = "mxnet"
    COMMAND = "command"


class RestartScope(StrEnum):
    """Who starts again when a task fails."""

    GANG = "gang"
    TASK = "task"
    SHRINK = "shrink"


class SpareUse(StrEnum):
    """Whether an interpreter that has imported the framework waits for the next start."""

    AUTO = "auto"
    NOW = "now"
    NEVER = "never"


class SuccessPolicy(StrEnum):
    """Whose success ends the job as Succeeded."""

    AUTO = "auto"
    ALL = "all"
    CHIEF = "chief"
    LAUNCHER = "launcher"


class GitSource(SpecModel):
    """Code from a git repository."""

    url: Annotated[str, Field(min_length=1)]
    """Where to clone from."""
    ref: str = "HEAD"
    """Branch, tag or commit."""


class Code(SpecModel):
    """Where the code comes from."""

    path: str = ""
    """A folder; relative to the document, or to where the command was typed."""
    git: GitSource | None = None
    """A repository instead of a folder."""
    in_place: bool = False
    """Run in the folder itself instead of in a snapshot of its content."""

    @model_validator(mode="after")
    def _one_source(self) -> Code:
        if self.path and self.git:
            message = "has a path and a git source; keep one of them"
            raise ValueError(message)
        return self


class Container(StrEnum):
    """Whether an image is used on this machine."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class Environment(SpecModel):
    """What the code runs with."""

    python: str = ""
    """An interpreter or a virtual environment's folder; default: the caller's interpreter."""
    requirements: str = ""
    """A requirements file, made into a cached virtual environment."""
    image: str = ""
    """A container image: used on a cluster, and here only with `container: always`."""
    container: Container = Container.AUTO
    """Whether to use the image on this machine, through podman or docker."""


class Replicas(SpecModel):
    """How many replicas a role has; more than `min` when there is room."""

    min: Annotated[int, Field(ge=0, le=10_000)] = 1
    """Fewer than this never start."""
    max: Annotated[int, Field(ge=1, le=10_000)] = 1
    """More than this are never made."""

    @model_validator(mode="after")
    def _ordered(self) -> Replicas:
        if self.min > self.max:
            message = f"min {self.min} is more than max {self.max}; swap them"
            raise ValueError(message)
        return self


class Role(SpecModel):
    """One kind of task: its command, how many, and what each needs."""

    replicas: Replicas = Replicas()
    """How many replicas; the gang starts when at least `min` of every role fit together."""
    processes: Annotated[int, Field(ge=0, le=1024)] = 0
    """Processes a replica; 0 means auto: one a GPU, else 1, and 1 when the command starts its own."""
    command: tuple[str, ...] = ()
    """The program and its arguments; never given to a shell."""
    script: str = ""
    """A bash script instead of a command; run with `bash -eu`."""
    env: dict[VariableName, str] = {}
    """Variables for this role, over those of the job."""
    resources: Resources = Resources()
    """What each replica is promised."""
    limits: Resources = Resources()
    """What each replica may not exceed."""
    placement: Placement = Placement()
    """Where replicas should or must lie."""

    @model_validator(mode="after")
    def _something_to_run(self) -> Role:
        if bool(self.command) == bool(self.script):
            message = (
                "has both a command and a script; keep one" if self.command else "has nothing to run; add a command or a script"
            )
            raise ValueError(message)
        return self


class Stop(SpecModel):
    """When the job has done enough. It then ends as Succeeded; rank 0's reports decide."""

    at_step: Annotated[int, Field(ge=1)] | None = None
    """End when this step is reported."""
    when: StopCondition = ""
    """End when this holds: `accuracy >= 0.98`, `loss < 0.1 and step > 500`."""

    @property
    def decided_by(self) -> frozenset[str]:
        """The metrics, and `step`, that it asks for."""
        names = condition.parse(self.when).metrics if self.when else frozenset()
        return names | {"step"} if self.at_step is not None else names

    @property
    def goals(self) -> dict[str, str]:
        """The metrics that it wants high (`max`) or low (`min`)."""
        return condition.goals(condition.parse(self.when)) if self.when else {}


class Restart(SpecModel):
    """What happens after a failure."""

    max: Annotated[int, Field(ge=0, le=1000)] = 3
    """How many failures are forgiven."""
    scope: RestartScope = RestartScope.GANG
    """gang: all tasks start again; task: only the one that failed; shrink: the survivors go on, fewer."""
    backoff: Duration = "1s"
    """The wait before the first restart; doubled each time."""
    backoff_max: Duration = "5m"
    """The longest wait."""
    spares: SpareUse = SpareUse.AUTO
    """Interpreters that have imported PyTorch and wait for the next start. auto: once the run is long; now: at once; never."""


class Checkpoint(SpecModel):
    """How often the code is asked to save, and how much is kept. Your code does the saving."""

    every: Duration = "5m"
    """`should_checkpoint()` says yes this often."""
    keep: Annotated[int, Field(ge=1, le=1000)] = 3
    """How many finished checkpoints stay."""


class Metrics(SpecModel):
    """Where metrics come from when the code reports none."""

    pattern: LinePattern = ""
    """A regular expression over log lines with named groups; a group called `step` is the step."""
    auto: bool = True
    """Read the usual log lines and files of frameworks, as long as the code reports nothing; false: read none."""


class TensorBoard(SpecModel):
    """Where event files lie."""

    dir: str = ""
    """A folder with event files; default: `$FAIRWAY_TENSORBOARD_DIR`."""
    serve: bool = False
    """On a cluster: a TensorBoard beside the run for as long as its logs are kept. Here `fairway tensorboard` starts one."""


class Keep(SpecModel):
    """How long things stay after the job has ended."""

    logs: Retention = "30d"
    """A length of time, or `forever`."""
    log_size: Bytes = "256Mi"
    """Output kept of each process; when there is more, the oldest part is removed. 0: all of it."""
    record: Retention = "forever"
    """A length of time, or `forever`."""


class KubernetesNetwork(SpecModel):
    """Network of the pods."""

    host: bool = False
    """Use the network of the node itself, where policy allows it; each task then has ports of its own on it."""
    interface: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.,^=-]*$", max_length=256)] = ""
    """The network interface that NCCL, Gloo and Open MPI use (`eth0`); empty: they choose."""
    rdma: bool = False
    """Lock memory as RDMA needs (IPC_LOCK), where policy allows it; devices are asked for by name: `rdma/hca: 1`."""


class Kubernetes(SpecModel):
    """Merged last into what is made on Kubernetes; ignored elsewhere."""

    pod: dict[str, Any] = {}
    """A fragment of a pod's spec."""
    network: KubernetesNetwork = KubernetesNetwork()
    """How the pods reach each other."""


class JobSpec(SpecModel):
    """Everything that a training job asks for."""

    framework: Framework = Framework.AUTO
    """How the tasks find each other; auto sets the variables of PyTorch, TensorFlow and JAX together."""
    code: Code = Code()
    """The code to run; none means that the command needs no folder."""
    environment: Environment = Environment()
    """Interpreter, requirements or image."""
    env: dict[VariableName, str] = {}
    """Variables for every role."""
    secrets: tuple[VariableName, ...] = ()
    """Names of secrets that become variables; their values never appear in views, and are masked in logs."""
    data: dict[Name, str] = {}
    """Inputs by name: a dataset version (`mnist@3`) or a reference that is never copied (a path or a URI)."""
    roles: Annotated[dict[Name, Role], Field(min_length=1)]
    """The kinds of task: worker, ps, chief, evaluator, launcher, or any name."""
    stop: Stop = Stop()
    """When it has done enough."""
    timeout: Duration | None = None
    """The longest it may run, restarts included; then it ends as Failed (Timeout)."""
    grace: Duration = "30s"
    """Between SIGTERM and SIGKILL."""
    restart: Restart = Restart()
    """What happens after a failure."""
    success: SuccessPolicy = SuccessPolicy.AUTO
    """Whose success counts; auto: launcher, else chief, else all workers."""
    checkpoint: Checkpoint = Checkpoint()
    """How often to save."""
    metrics: Metrics = Metrics()
    """Metrics from log lines."""
    tensorboard: TensorBoard = TensorBoard()
    """Metrics from event files."""
    outputs: dict[Name, str] = {}
    """What the job leaves behind: `{model: mnist}` keeps what lies in `$FAIRWAY_OUTPUT_MODEL`."""
    queue: Name = "default"
    """The queue it waits in."""
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """Higher goes first."""
    keep: Keep = Keep()
    """How long things stay."""
    kubernetes: Kubernetes = Kubernetes()
    """For Kubernetes only."""


class Metadata(SpecModel):
    """Name and labels, as Kubernetes has them."""

    name: Name
    """The series: each submit makes `NAME-1`, `NAME-2` and so on."""
    namespace: Name = "default"
    """Whose it is; names are unique within a namespace."""
    labels: dict[str, str] = {}
    """For finding it again."""
    annotations: dict[str, str] = {}
    """Notes of any kind, for people and tools."""


class TrainingJob(SpecModel):
    """A training job document in the Kubernetes spelling."""

    api_version: Literal["fairway.dev/v1alpha1"] = "fairway.dev/v1alpha1"
    """The version of this schema."""
    kind: Literal["TrainingJob"] = "TrainingJob"
    """What the document describes."""
    metadata: Metadata
    """Name and labels."""
    spec: JobSpec
    """What is asked."""
