"""What the application needs of the outside, as roles. Adapters live in `engines`, `stores`, `registry`.

Every implementation of `Engine` and of `Store` passes the suite of that name in `fairway.testing`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from fairway.app.model_store import RegistryNames
from fairway.app.sent import Sent
from fairway.app.tracking_ports import TrackingStore
from fairway.app.verification import Course
from fairway.plan.action import Action
from fairway.state.activity import RankSight
from fairway.state.content import Verified
from fairway.state.dataset import DatasetFile, DatasetVersion
from fairway.state.event import Event
from fairway.state.job import Job, JobKey
from fairway.state.node import Node
from fairway.state.queue import Queue
from fairway.state.receipt import Receipt
from fairway.state.recovery import Unreadable
from fairway.state.service import ServiceKey, ServiceRecord
from fairway.state.task import Task, TaskKey, TaskReport
from fairway.state.tracking import Tracked


class Clock(Protocol):
    """The time."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One report: numbers at a step."""

    time: float
    step: int | None
    metrics: dict[str, float]
    task: str = ""
    """`worker-0`."""
    source: str = "report"
    """`report`, `tensorboard`, `log`, `auto` or `mlflow`."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What an engine saw besides the tasks' own state."""

    key: JobKey
    points: tuple[MetricPoint, ...] = ()
    """New metric points, each handed over once."""
    checkpoint_step: int | None = None
    checkpoint_time: float | None = None
    refused: tuple[str, ...] = ()
    """Reports that were refused, each named once, with value and reason."""
    ranks: tuple[RankSight, ...] = ()
    """What its ranks did lately; not with every observation."""
    removed: dict[str, int] | None = None
    """Bytes of output that were removed because there was too much, by process; None: not looked at."""


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Which part of which logs."""

    role: str = ""
    index: int | None = None
    attempt: int | None = None
    """None: the newest attempt of each task; -1: all attempts, oldest first."""
    tail: int | None = None
    since: float | None = None
    """Seconds since the epoch."""
    grep: str = ""
    """A regular expression; only lines that match."""
    follow: bool = False
    streams: bool = False
    """Whether each chunk is of one stream; only the logs of runs whose caller keeps them apart know."""
    timed: bool = False
    """Whether the time of every chunk matters: then no chunk reaches over an entry of its log's index."""


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A piece of one task's output."""

    task: str
    """`worker-0`; `worker-0.1` for the second process of a task with several."""
    attempt: int
    data: bytes
    time: float | None = None
    """When it was written, to the resolution of the log's index."""
    stderr: bool = False
    """Whether it is known to come from standard error."""
    skipped: int = 0
    """Bytes right before it that were removed because there was too much output."""


@dataclass(frozen=True, slots=True)
class TaskInside:
    """Where a running task is: enough to run a command beside it."""

    folder: str
    environment: dict[str, str]


@dataclass(frozen=True, slots=True)
class TaskUsage:
    """What a task uses now, all its processes together."""

    cpu: float | None
    """Cores; None: nobody says."""
    memory: int | None
    """Bytes; pages that processes share are divided between them."""
    gpu: float | None = None
    """The part of the time in which its devices compute, for whomever; None: nobody says, or it has none."""


class Engine(Protocol):
    """Runs tasks. Promises:

    1. `perform` is idempotent: the same action again, after a crash in between, changes nothing.
    2. A task is started at most once per key, ever; two engines on the same home cannot both start it.
    3. `BindGang` starts all its tasks or none; what could not be bound is reported as Pending with the reason.
    4. `observe` tells the truth about every key asked: what nobody knows is `Lost`, never invented.
    5. After the task is reported over, none of its processes is left and its devices and ports are free.
    6. Nothing here raises for a task's failure; failures are reports.
    """

    async def start(self, wake: Callable[[], None]) -> None:
        """Begin. `wake` may be called at any time from the event loop when something may have changed."""
        ...

    async def close(self) -> None:
        """Let go. Tasks go on running."""
        ...

    async def nodes(self) -> tuple[Node, ...]:
        """What there is to run on, now."""
        ...

    async def perform(self, actions: Sequence[Action]) -> list[TaskReport]:
        """Do it, in order. Reports are what became known on the way."""
        ...

    async def observe(self, keys: Iterable[TaskKey]) -> list[TaskReport]:
        """What is known of each of these tasks now."""
        ...

    async def measure(self, jobs: Iterable[Job]) -> list[Observation]:
        """New metrics and checkpoints of these running jobs."""
        ...

    def logs(self, job: Job, query: LogQuery) -> AsyncIterator[LogChunk]:
        """The output of a run's tasks. With `follow` it ends when the run has ended and all was read."""
        ...

    async def kept(self) -> list[JobKey]:
        """The runs of which the engine keeps anything."""
        ...

    def release(self, key: JobKey) -> None:
        """The run is over: let go of what is kept in memory for it, and let whoever follows its logs look again."""
        ...

    async def type_in(self, key: TaskKey, data: bytes) -> None:
        """Give input to a running task; empty means that no more will come, Ctrl-C alone interrupts it."""
        ...

    async def resize(self, key: TaskKey, rows: int, columns: int) -> None:
        """Tell a running task's terminal the size of its window."""
        ...

    async def inside(self, key: TaskKey) -> TaskInside:
        """Folder and environment of a running task; `ConflictError` when it does not run."""
        ...

    async def usage(self, keys: Iterable[TaskKey]) -> dict[TaskKey, TaskUsage]:
        """What these tasks use, looked at for a moment; those that do not run are left out."""
        ...


@dataclass(frozen=True, slots=True)
class Changes:
    """What one turn of the loop, or one command, wants remembered; all of it or nothing."""

    jobs: tuple[Job, ...] = ()
    tasks: tuple[Task, ...] = ()
    events: tuple[Event, ...] = ()
    points: tuple[tuple[JobKey, MetricPoint], ...] = ()
    deleted: tuple[JobKey, ...] = ()
    queues: tuple[Queue, ...] = ()
    queues_deleted: tuple[str, ...] = ()
    memory: bytes | None = None
    """What the scheduler remembers, in its own words; None leaves what was remembered last."""
    services: tuple[ServiceRecord, ...] = ()
    services_deleted: tuple[ServiceKey, ...] = ()
    tracked: tuple[Tracked, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    """What requests with a key did by these changes. Those that are too old, or too many, are dropped with it."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which runs to list."""

    namespace: str = ""
    """Empty: all."""
    series: str = ""
    phases: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    limit: int = 100
    before: str = ""
    """The cursor of the page before, from `JobPage.next`."""


@dataclass(frozen=True, slots=True)
class JobPage:
    """Some runs, newest first."""

    jobs: tuple[Job, ...]
    next: str = ""
    """Cursor of the following page; empty at the end."""
    total: int = 0
    """Runs that match, on all pages."""


class Store(TrackingStore, Protocol):
    """Remembers. Promises:

    1. `commit` is atomic and durable against the death of the process: all of the changes or none.
    2. What is read is what was committed last; values are equal to those that went in.
    3. Run numbers of a series rise by one and are never used twice, also after a delete.
    4. Cost of `list_jobs`, `get_job` and `commit` does not grow with the number of finished runs.
    """

    def close(self) -> None:
        """Let go of files."""
        ...

    def next_number(self, namespace: str, series: str) -> int:
        """Take the next run number of a series, for good."""
        ...

    def commit(self, changes: Changes) -> None:
        """Remember all of it, or raise and remember nothing."""
        ...

    def active_jobs(self) -> list[Job]:
        """The runs that are not over, oldest first."""
        ...

    def tasks_of(self, key: JobKey) -> list[Task]:
        """Every attempt of every task of a run."""
        ...

    def job_keys(self) -> set[JobKey]:
        """The names of all runs."""
        ...

    def has_job(self, key: JobKey) -> bool:
        """Whether there is a record of the run, readable or not."""
        ...

    def mark_deleted(self, keys: Sequence[JobKey]) -> None:
        """Note durably, before anything is removed, that these runs are being deleted: they do not come back."""
        ...

    def was_deleted(self, key: JobKey) -> bool:
        """Whether the run was deleted, or is being deleted, and was not made again since."""
        ...

    def raise_number(self, namespace: str, series: str, number: int) -> None:
        """Let the next run number of a series be above this one."""
        ...

    def unreadable(self) -> list[Unreadable]:
        """The records that cannot be decoded. Lists leave them out; `get_job` raises `UnavailableError` for one of a run."""
        ...

    def get_job(self, key: JobKey) -> Job | None:
        """One run."""
        ...

    def newest(self, namespace: str, series: str) -> Job | None:
        """The newest run of a series."""
        ...

    def list_jobs(self, filter: JobFilter) -> JobPage:
        """Runs, newest first."""
        ...

    def events_of(self, subject: str, limit: int = 1000) -> list[Event]:
        """Events of a run and of its tasks, or of everything when the subject is empty; oldest first, the newest `limit`."""
        ...

    def points_of(self, key: JobKey, metric: str = "", limit: int = 2000) -> list[MetricPoint]:
        """Metric points of a run, or of a tracked run, in order of time; thinned evenly to at most `limit`."""
        ...

    def expired(self, now: float, limit: int) -> tuple[list[Job], list[Job]]:
        """Runs whose logs, and runs of which everything, has stayed its time (`plan.retention`); so many of each at most."""
        ...

    def series_names(self, namespace: str) -> list[str]:
        """The names of all series, for did-you-mean."""
        ...

    def queues(self) -> list[Queue]:
        """The queues that were put and not deleted, in order of name."""
        ...

    def memory(self) -> bytes | None:
        """What the scheduler remembers, as committed last; None when it never was."""
        ...

    def services(self) -> list[ServiceRecord]:
        """The services that were put and not deleted, in order of namespace and name."""
        ...

    def receipt(self, id: str) -> Receipt | None:
        """What the request of that id did; None when it is not known, or no longer."""
        ...


class People(Protocol):
    """Knows who belongs where."""

    def groups_of(self, user: str) -> tuple[str, ...]:
        """The names of a user's groups; none when nobody is called so."""
        ...


class DatasetStore(RegistryNames, Protocol):
    """Keeps versions of datasets. Promises that a version is whole and never changes; one by reference is only described."""

    def add(self, name: str, path: str | Sent, now: float, *, reference: bool = False, run: str = "") -> DatasetVersion:
        """Keep what lies at the path, or was sent, as the next version; by `reference` what it is, and where, without copying.

        `run` is the run that made it.
        """
        ...

    def gather(
        self, name: str, files: Mapping[str, Path], now: float, services: Sequence[str], models: Sequence[str], largest: int
    ) -> DatasetVersion:
        """Keep sampled requests and those of the newest version that services made, as the next; at most `largest` bytes.

        In order of name the first go. Done again it gives the version that there is.
        """
        ...

    def delete(self, version: DatasetVersion) -> None:
        """Let a version be gone. Its number is not used again."""
        ...

    def get(self, reference: str) -> DatasetVersion:
        """The version that `mnist@3`, `mnist@latest` or `mnist` means."""
        ...

    def files(self, version: DatasetVersion) -> Sequence[DatasetFile]:
        """The files of a version, in order of path."""
        ...

    def packed(self, version: DatasetVersion) -> Iterator[bytes]:
        """The content of a version as a tar archive, in pieces; `RefusedError` for one by reference."""
        ...

    def verify(self, versions: Sequence[DatasetVersion], course: Course) -> Verified:
        """Read all content of versions and compare it with its digests; `course` says how far it is."""
        ...

    def list(self) -> list[DatasetVersion]:
        """Every version of every dataset, by name and number."""
        ...


class SecretStore(Protocol):
    """Keeps values that must not be seen. Promises that no view, log or error ever holds a value."""

    def names(self) -> list[str]:
        """Which there are."""
        ...

    def put(self, name: str, value: str) -> None:
        """Keep a value, over an older one."""
        ...

    def delete(self, name: str) -> None:
        """Forget one; `NotFoundError` when it is not there."""
        ...

    def reveal(self, names: Iterable[str]) -> dict[str, str]:
        """The values, for a task's environment only."""
        ...
