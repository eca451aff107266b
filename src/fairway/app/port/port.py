"""The ports of the application. Adapters are in `engines`, `stores`, `registry`.

Every implementation of `Engine` and of `Store` passes the suite of that name in `fairway.testing`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from fairway.app.port.model_store import NameResolver
from fairway.app.port.tracking import TrackingStore
from fairway.app.upload import UploadedContent
from fairway.app.verification_progress import VerificationProgress
from fairway.plan.action import Action
from fairway.state.content_check import ContentVerification
from fairway.state.database_recovery import UnreadableRecord
from fairway.state.dataset import DatasetFile, DatasetVersion
from fairway.state.event import RunEvent
from fairway.state.job import JobKey, JobState
from fairway.state.mlflow_record import TrackingRecord
from fairway.state.node import ClusterNode
from fairway.state.queue import Queue
from fairway.state.request_receipt import RequestReceipt
from fairway.state.service import ServiceKey, ServiceRecord
from fairway.state.stall import RankSample
from fairway.state.task import Task, TaskKey, TaskReport


class Clock(Protocol):
    """A source of the current time."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        ...


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One report: metric values at a step."""

    time: float
    step: int | None
    metrics: dict[str, float]
    task: str = ""
    """`worker-0`."""
    source: str = "report"
    """`report`, `tensorboard`, `log`, `auto` or `mlflow`."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What an engine observed in addition to the state of tasks."""

    key: JobKey
    points: tuple[MetricPoint, ...] = ()
    """New metric points, each returned once."""
    checkpoint_step: int | None = None
    checkpoint_time: float | None = None
    refused: tuple[str, ...] = ()
    """Reports that were refused, each listed once, with value and reason."""
    ranks: tuple[RankSample, ...] = ()
    """Recent activity of the ranks; not part of every observation."""
    removed: dict[str, int] | None = None
    """Bytes of output removed because of the size limit, by process; None: not checked."""


@dataclass(frozen=True, slots=True)
class LogQuery:
    """A selection of logs and of parts of them."""

    role: str = ""
    index: int | None = None
    attempt: int | None = None
    """None: the newest attempt of each task; -1: all attempts, oldest first."""
    tail: int | None = None
    since: float | None = None
    """Seconds since the epoch."""
    grep: str = ""
    """A regular expression; only matching lines are returned."""
    follow: bool = False
    streams: bool = False
    """Whether each chunk belongs to one stream; available only if the run was submitted with separate streams."""
    timed: bool = False
    """Whether the time of every chunk matters: then no chunk spans more than one entry of its log's index."""


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A piece of one task's output."""

    task: str
    """`worker-0`; `worker-0.1` for the second process of a task with several."""
    attempt: int
    data: bytes
    time: float | None = None
    """Time of writing, to the resolution of the log's index."""
    stderr: bool = False
    """Whether it is known to be standard error."""
    skipped: int = 0
    """Number of bytes right before it that were removed because of the size limit."""


@dataclass(frozen=True, slots=True)
class TaskSite:
    """Folder and environment of a running task, enough to run a command beside it."""

    folder: str
    environment: dict[str, str]


@dataclass(frozen=True, slots=True)
class TaskUsage:
    """Current resource usage of all processes of a task together."""

    cpu: float | None
    """Cores; None: not available."""
    memory: int | None
    """Bytes; pages shared between processes are divided among them."""
    gpu: float | None = None
    """Fraction of time in which its devices compute, for any process; None: not available, or it has none."""


class Engine(Protocol):
    """Runs tasks. Guarantees:

    1. `perform` is idempotent: repeating an action, even after a crash in between, changes nothing.
    2. A task is started at most once per key, ever; two engines on the same home cannot both start it.
    3. `BindGang` starts all its tasks or none; a gang that could not be bound is reported as Pending with the reason.
    4. `observe` is truthful about every requested key: unknown tasks are `Lost`, never invented.
    5. After a task is reported as over, none of its processes remains and its devices and ports are free.
    6. No method raises because a task failed; failures are reports.
    """

    async def start(self, wake: Callable[[], None]) -> None:
        """Start. The engine may call `wake` from the event loop at any time when something may have changed."""
        ...

    async def close(self) -> None:
        """Detach from the tasks. They continue to run."""
        ...

    async def nodes(self) -> tuple[ClusterNode, ...]:
        """Return the nodes that are available now."""
        ...

    async def perform(self, actions: Sequence[Action]) -> list[TaskReport]:
        """Perform the actions in order. Return reports of what became known in the process."""
        ...

    async def observe(self, keys: Iterable[TaskKey]) -> list[TaskReport]:
        """Return the current state of each of these tasks."""
        ...

    async def measure(self, jobs: Iterable[JobState]) -> list[Observation]:
        """Return new metrics and checkpoints of these running jobs."""
        ...

    def logs(self, job: JobState, query: LogQuery) -> AsyncIterator[LogChunk]:
        """Stream the output of a run's tasks. With `follow` the stream ends when the run has ended and all output was read."""
        ...

    async def kept(self) -> list[JobKey]:
        """Return the runs of which the engine keeps any data."""
        ...

    def release(self, key: JobKey) -> None:
        """Free memory held for a finished run, and wake readers that follow its logs."""
        ...

    async def type_in(self, key: TaskKey, data: bytes) -> None:
        """Send input to a running task; empty data means end of input, Ctrl-C alone interrupts the task."""
        ...

    async def resize(self, key: TaskKey, rows: int, columns: int) -> None:
        """Set the window size of a running task's terminal."""
        ...

    async def inside(self, key: TaskKey) -> TaskSite:
        """Return the folder and environment of a running task; `ConflictError` when it does not run."""
        ...

    async def usage(self, keys: Iterable[TaskKey]) -> dict[TaskKey, TaskUsage]:
        """Return the resource usage of these tasks, measured over a moment; tasks that do not run are left out."""
        ...


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """The changes of one turn of the loop, or of one command, stored atomically."""

    jobs: tuple[JobState, ...] = ()
    tasks: tuple[Task, ...] = ()
    events: tuple[RunEvent, ...] = ()
    points: tuple[tuple[JobKey, MetricPoint], ...] = ()
    deleted: tuple[JobKey, ...] = ()
    queues: tuple[Queue, ...] = ()
    queues_deleted: tuple[str, ...] = ()
    memory: bytes | None = None
    """The scheduler's memory in its own encoding; None keeps the stored value."""
    services: tuple[ServiceRecord, ...] = ()
    services_deleted: tuple[ServiceKey, ...] = ()
    tracked: tuple[TrackingRecord, ...] = ()
    receipts: tuple[RequestReceipt, ...] = ()
    """Receipts of requests with an idempotency key that made these changes. Receipts over the age or count limit are dropped."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Selection of runs to list."""

    namespace: str = ""
    """Empty: all."""
    series: str = ""
    phases: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    limit: int = 100
    before: str = ""
    """Cursor of the previous page, from `JobPage.next`."""


@dataclass(frozen=True, slots=True)
class JobPage:
    """A page of runs, newest first."""

    jobs: tuple[JobState, ...]
    next: str = ""
    """Cursor of the next page; empty at the end."""
    total: int = 0
    """Number of matching runs, on all pages."""


class Store(TrackingStore, Protocol):
    """Persistent state. Guarantees:

    1. `commit` is atomic, and durable against the death of the process: all of the changes or none.
    2. Reads return what was committed last; values are equal to those that were stored.
    3. Run numbers of a series increase by one and are never reused, even after a delete.
    4. The cost of `list_jobs`, `get_job` and `commit` does not grow with the number of finished runs.
    """

    def close(self) -> None:
        """Close all files."""
        ...

    def next_number(self, namespace: str, series: str) -> int:
        """Allocate the next run number of a series, permanently."""
        ...

    def commit(self, changes: ChangeSet) -> None:
        """Store all changes, or raise and store nothing."""
        ...

    def active_jobs(self) -> list[JobState]:
        """Return the unfinished runs, oldest first."""
        ...

    def tasks_of(self, key: JobKey) -> list[Task]:
        """Return every attempt of every task of a run."""
        ...

    def job_keys(self) -> set[JobKey]:
        """Return the keys of all runs."""
        ...

    def has_job(self, key: JobKey) -> bool:
        """Return whether the run has a record, readable or not."""
        ...

    def mark_deleted(self, keys: Sequence[JobKey]) -> None:
        """Record durably, before anything is removed, that these runs are being deleted, so that they are not recovered."""
        ...

    def was_deleted(self, key: JobKey) -> bool:
        """Return whether the run was deleted, or is being deleted, and was not created again since."""
        ...

    def raise_number(self, namespace: str, series: str, number: int) -> None:
        """Make the next run number of a series greater than this one."""
        ...

    def unreadable(self) -> list[UnreadableRecord]:
        """Return the records that cannot be decoded.

        Lists leave them out; `get_job` raises `UnavailableError` for such a run.
        """
        ...

    def get_job(self, key: JobKey) -> JobState | None:
        """Return one run."""
        ...

    def newest(self, namespace: str, series: str) -> JobState | None:
        """Return the newest run of a series."""
        ...

    def list_jobs(self, filter: JobFilter) -> JobPage:
        """List runs, newest first."""
        ...

    def events_of(self, subject: str, limit: int = 1000) -> list[RunEvent]:
        """Return events of a run and its tasks, or of everything if the subject is empty; oldest first, the newest `limit`."""
        ...

    def events_in(self, namespace: str, limit: int = 1000) -> list[RunEvent]:
        """Return events of the runs, tasks and services of a namespace; oldest first, the newest `limit`."""
        ...

    def points_of(self, key: JobKey, metric: str = "", limit: int = 2000) -> list[MetricPoint]:
        """Return metric points of a run, or of a tracked run, in order of time; thinned evenly to at most `limit`."""
        ...

    def expired(self, now: float, limit: int) -> tuple[list[JobState], list[JobState]]:
        """Return runs whose logs have expired, and runs that have expired completely (`plan.retention`).

        At most `limit` of each.
        """
        ...

    def series_names(self, namespace: str) -> list[str]:
        """Return the names of all series, for did-you-mean hints."""
        ...

    def queues(self) -> list[Queue]:
        """Return the stored queues, in order of name."""
        ...

    def memory(self) -> bytes | None:
        """Return the scheduler's memory as last committed; None if there is none."""
        ...

    def services(self) -> list[ServiceRecord]:
        """Return the stored services, in order of namespace and name."""
        ...

    def receipt(self, id: str) -> RequestReceipt | None:
        """Return the receipt of the request with that id; None if it is unknown or has expired."""
        ...


class GroupLookup(Protocol):
    """The members of groups."""

    def groups_of(self, user: str) -> tuple[str, ...]:
        """Return the names of a user's groups; none for an unknown user."""
        ...


class DatasetStore(NameResolver, Protocol):
    """Stores versions of datasets.

    Guarantees that a version is complete and immutable; a version by reference is only described.
    """

    def add(
        self, name: str, path: str | UploadedContent, now: float, *, reference: bool = False, run: str = ""
    ) -> DatasetVersion:
        """Store the content of the path, or uploaded content, as the next version.

        With `reference` only its description and location.

        `run` is the run that created it.
        """
        ...

    def gather(
        self, name: str, files: Mapping[str, Path], now: float, services: Sequence[str], models: Sequence[str], largest: int
    ) -> DatasetVersion:
        """Store sampled requests, and those of the newest version that services created, as the next version.

        At most `largest` bytes are kept: the first files in order of name are dropped. Repeating it returns the existing version.
        """
        ...

    def delete(self, version: DatasetVersion) -> None:
        """Delete a version. Its number is not reused."""
        ...

    def get(self, reference: str) -> DatasetVersion:
        """Return the version that `mnist@3`, `mnist@latest` or `mnist` refers to."""
        ...

    def files(self, version: DatasetVersion) -> Sequence[DatasetFile]:
        """Return the files of a version, in order of path."""
        ...

    def packed(self, version: DatasetVersion) -> Iterator[bytes]:
        """Yield the content of a version as a tar archive, in pieces; `RefusedError` for a version by reference."""
        ...

    def verify(self, versions: Sequence[DatasetVersion], course: VerificationProgress) -> ContentVerification:
        """Read all content of versions and compare it with its digests; `course` tracks the progress."""
        ...

    def list(self) -> list[DatasetVersion]:
        """List every version of every dataset, by name and number."""
        ...


class SecretStore(Protocol):
    """Stores secret values. Guarantees that no view, log or error ever contains a value."""

    def names(self) -> list[str]:
        """Return the names of all secrets."""
        ...

    def put(self, name: str, value: str) -> None:
        """Store a value, replacing an older one."""
        ...

    def delete(self, name: str) -> None:
        """Delete a secret; `NotFoundError` if it does not exist."""
        ...

    def reveal(self, names: Iterable[str]) -> dict[str, str]:
        """Return the values, for a task's environment only."""
        ...
