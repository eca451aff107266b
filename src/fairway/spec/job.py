"""The training job document. One type per field."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from fairway.spec import condition
from fairway.spec.resource import PlacementConstraints, ResourceAmounts
from fairway.spec.spec_model import Bytes, Duration, LinePattern, Name, Retention, SpecModel, StopCondition, VariableName


class TrainingFramework(StrEnum):
    """The framework whose settings for distributed training the tasks receive."""

    AUTO = "auto"
    PYTORCH = "pytorch"
    TENSORFLOW = "tensorflow"
    JAX = "jax"
    MPI = "mpi"
    MXNET = "mxnet"
    COMMAND = "command"


class RestartScope(StrEnum):
    """Which tasks are restarted when one fails."""

    GANG = "gang"
    TASK = "task"
    SHRINK = "shrink"


class SpareInterpreterUse(StrEnum):
    """Whether an interpreter with the framework already imported is kept ready for the next start."""

    AUTO = "auto"
    NOW = "now"
    NEVER = "never"


class SuccessPolicy(StrEnum):
    """Which tasks must succeed for the job to end as Succeeded."""

    AUTO = "auto"
    ALL = "all"
    CHIEF = "chief"
    LAUNCHER = "launcher"


class GitSource(SpecModel):
    """Code from a git repository."""

    url: Annotated[str, Field(min_length=1)]
    """URL to clone from."""
    ref: str = "HEAD"
    """Branch, tag or commit."""


class CodeSource(SpecModel):
    """The source of the code."""

    path: str = ""
    """A folder; relative to the document, or to the folder in which the command was run."""
    git: GitSource | None = None
    """A repository instead of a folder."""
    in_place: bool = False
    """Run in the folder itself instead of in a snapshot of its content."""

    @model_validator(mode="after")
    def _one_source(self) -> CodeSource:
        if self.path and self.git:
            message = "has a path and a git source; keep one of them"
            raise ValueError(message)
        return self


class ContainerUse(StrEnum):
    """Whether the image is used on this machine."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class RuntimeEnvironment(SpecModel):
    """The environment in which the code runs."""

    python: str = ""
    """An interpreter or the folder of a virtual environment; default: the caller's interpreter."""
    requirements: str = ""
    """A requirements file, installed into a cached virtual environment."""
    image: str = ""
    """A container image: used on a cluster; on this machine only with `container: always`."""
    container: ContainerUse = ContainerUse.AUTO
    """Whether to use the image on this machine, through podman or docker."""


class RoleReplicas(SpecModel):
    """Number of replicas of a role. Starts with more than `min` when there is room."""

    min: Annotated[int, Field(ge=0, le=10_000)] = 1
    """Minimum number of replicas; the job does not start with fewer."""
    max: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Maximum number of replicas."""

    @model_validator(mode="after")
    def _ordered(self) -> RoleReplicas:
        if self.min > self.max:
            message = f"min {self.min} is more than max {self.max}; swap them"
            raise ValueError(message)
        return self


class TaskRole(SpecModel):
    """One kind of task: its command, its number of replicas, and the resources of each."""

    replicas: RoleReplicas = RoleReplicas()
    """Number of replicas. The gang (all tasks of the job) starts when at least `min` replicas of every role fit together."""
    processes: Annotated[int, Field(ge=0, le=1024)] = 0
    """Processes per replica. 0 means automatic: one per GPU, or 1 without GPUs; always 1 when the command starts its own
    processes."""
    command: tuple[str, ...] = ()
    """The program and its arguments; never passed to a shell."""
    script: str = ""
    """A bash script instead of a command; run with `bash -eu`."""
    env: dict[VariableName, str] = {}
    """Environment variables of this role; they override those of the job."""
    resources: ResourceAmounts = ResourceAmounts()
    """Resources reserved for each replica."""
    limits: ResourceAmounts = ResourceAmounts()
    """Maximum resources of each replica."""
    placement: PlacementConstraints = PlacementConstraints()
    """Constraints on where replicas are placed."""

    @model_validator(mode="after")
    def _something_to_run(self) -> TaskRole:
        if bool(self.command) == bool(self.script):
            message = (
                "has both a command and a script; keep one" if self.command else "has nothing to run; add a command or a script"
            )
            raise ValueError(message)
        return self


class StopPolicy(SpecModel):
    """When to stop the job early. It then ends as Succeeded; the reports of rank 0 decide."""

    at_step: Annotated[int, Field(ge=1)] | None = None
    """Stop when this step is reported."""
    when: StopCondition = ""
    """Stop when this condition holds: `accuracy >= 0.98`, `loss < 0.1 and step > 500`."""

    @property
    def decided_by(self) -> frozenset[str]:
        """Names of the metrics that decide, including `step`."""
        names = condition.parse(self.when).metrics if self.when else frozenset()
        return names | {"step"} if self.at_step is not None else names

    @property
    def goals(self) -> dict[str, str]:
        """The metrics that the condition needs high (`max`) or low (`min`)."""
        return condition.goals(condition.parse(self.when)) if self.when else {}


class RestartPolicy(SpecModel):
    """How to restart after a failure."""

    max: Annotated[int, Field(ge=0, le=1000)] = 3
    """Maximum number of failures after which the job is restarted."""
    scope: RestartScope = RestartScope.GANG
    """gang: restart all tasks; task: restart only the failed one; shrink: continue with the remaining tasks."""
    backoff: Duration = "1s"
    """Delay before the first restart; doubled for each further one."""
    backoff_max: Duration = "5m"
    """Maximum delay before a restart."""
    spares: SpareInterpreterUse = SpareInterpreterUse.AUTO
    """Spare interpreters that have imported PyTorch and wait for the next start. auto: kept once the run is long; now: from the
    start; never: not kept."""


class CheckpointPolicy(SpecModel):
    """How often to save checkpoints, and how many to keep. Your code writes them."""

    every: Duration = "5m"
    """Interval at which `should_checkpoint()` returns true."""
    keep: Annotated[int, Field(ge=1, le=1000)] = 3
    """Number of complete checkpoints to keep."""


class MetricSource(SpecModel):
    """Sources of metrics for code that reports none."""

    pattern: LinePattern = ""
    """A regular expression with named groups, applied to log lines; each group is a metric, and a group called `step` is the
    step."""
    auto: bool = True
    """Read metrics from common log lines and files of frameworks, as long as the code reports none; false: do not."""


class TensorBoardSource(SpecModel):
    """TensorBoard event files."""

    dir: str = ""
    """Folder with event files; default: `$FAIRWAY_TENSORBOARD_DIR`."""
    serve: bool = False
    """On a cluster: run a TensorBoard server for the run for as long as its logs are kept. On this machine, `fairway tensorboard`
    starts one."""


class RetentionPolicy(SpecModel):
    """How long data is kept after the job has ended."""

    logs: Retention = "30d"
    """A length of time, or `forever`."""
    log_size: Bytes = "256Mi"
    """Maximum size of the output kept per process; when it is exceeded, the oldest part is removed. 0: no limit."""
    record: Retention = "forever"
    """A length of time, or `forever`."""


class KubernetesNetwork(SpecModel):
    """Network of the pods."""

    host: bool = False
    """Use the network of the node, where policy allows it. Each task then has its own ports on the node."""
    interface: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.,^=-]*$", max_length=256)] = ""
    """The network interface that NCCL, Gloo and Open MPI use (`eth0`); empty: the libraries choose."""
    rdma: bool = False
    """Allow locking memory (IPC_LOCK), which RDMA needs, where policy allows it. Request the devices by name: `rdma/hca: 1`."""


class KubernetesSettings(SpecModel):
    """Settings for Kubernetes, merged last into the objects that Fairway creates there; ignored elsewhere."""

    pod: dict[str, Any] = {}
    """A fragment of a PodSpec, merged into the spec of each pod."""
    network: KubernetesNetwork = KubernetesNetwork()
    """Network of the pods."""


class JobSpec(SpecModel):
    """Specification of a training job."""

    framework: TrainingFramework = TrainingFramework.AUTO
    """Framework for which the tasks are set up to find each other; auto sets the variables of PyTorch, TensorFlow and JAX
    together."""
    code: CodeSource = CodeSource()
    """The code to run; may be left out if the command needs no folder."""
    environment: RuntimeEnvironment = RuntimeEnvironment()
    """Interpreter, requirements or container image."""
    env: dict[VariableName, str] = {}
    """Environment variables of every role."""
    secrets: tuple[VariableName, ...] = ()
    """Names of secrets to set as environment variables. Their values never appear in views and are masked in logs."""
    data: dict[Name, str] = {}
    """Inputs by name: a dataset version (`mnist@3`) or a reference that is never copied (a path or a URI)."""
    roles: Annotated[dict[Name, TaskRole], Field(min_length=1)]
    """The kinds of task: worker, ps, chief, evaluator, launcher, or any name."""
    stop: StopPolicy = StopPolicy()
    """When to stop the job early."""
    timeout: Duration | None = None
    """Maximum run time, including restarts; after it the job ends as Failed (Timeout)."""
    grace: Duration = "30s"
    """Time between SIGTERM and SIGKILL."""
    restart: RestartPolicy = RestartPolicy()
    """How to restart after a failure."""
    success: SuccessPolicy = SuccessPolicy.AUTO
    """Which tasks must succeed; auto: the launcher if there is one, else the chief, else all workers."""
    checkpoint: CheckpointPolicy = CheckpointPolicy()
    """How often to save checkpoints, and how many to keep."""
    metrics: MetricSource = MetricSource()
    """Metrics from log lines."""
    tensorboard: TensorBoardSource = TensorBoardSource()
    """Metrics from event files."""
    outputs: dict[Name, str] = {}
    """Results of the job: `{model: mnist}` stores the content of `$FAIRWAY_OUTPUT_MODEL` under the name mnist."""
    queue: Name = "default"
    """The queue in which the job waits."""
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """Jobs with a higher priority start first."""
    keep: RetentionPolicy = RetentionPolicy()
    """How long data is kept after the job has ended."""
    kubernetes: KubernetesSettings = KubernetesSettings()
    """Settings for Kubernetes only."""


class DocumentMetadata(SpecModel):
    """Name and labels, as in Kubernetes."""

    name: Name
    """Name of the series; each submission creates the next run: `NAME-1`, `NAME-2` and so on."""
    namespace: Name = "default"
    """The namespace; names are unique within it."""
    labels: dict[str, str] = {}
    """Labels for selecting the object."""
    annotations: dict[str, str] = {}
    """Notes of any kind, for people and tools."""


class TrainingJob(SpecModel):
    """A training job document in the Kubernetes spelling."""

    api_version: Literal["fairway.dev/v1alpha1"] = "fairway.dev/v1alpha1"
    """The version of this schema."""
    kind: Literal["TrainingJob"] = "TrainingJob"
    """What the document describes."""
    metadata: DocumentMetadata
    """Name and labels."""
    spec: JobSpec
    """Specification of the job."""
