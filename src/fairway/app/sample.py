"""Gathers requests sampled by replicas into versions of a dataset, each request once, even after a crash at any point."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from fairway.app.dataset import DatasetUseCases
from fairway.app.loop.loop import ReconcileLoop
from fairway.app.port.port import DatasetStore
from fairway.app.port.serving import SampleFile, SampleFiles
from fairway.plan.service.replica import OWN_NAMESPACE, SAMPLES_LABEL, SERVICE_LABEL
from fairway.state.job import JobKey, JobState

LOOK_EVERY = 60.0
"""Interval at which the files of replicas are checked, in seconds."""
GATHER_AFTER = 600.0
"""Age at which a closed file of a running replica becomes part of a version, in seconds ..."""
GATHER_SIZE = 64 << 20
"""... or when this many bytes wait for one dataset."""
LARGEST = 256 << 20
"""Maximum size of one version, in bytes: the newest requests."""
VERSIONS = 24
"""Number of versions of a request dataset that are kept; versions of a dataset that a run uses are kept too."""


@dataclass(slots=True)
class _PendingSamples:
    """Files that wait for one dataset."""

    files: list[SampleFile] = field(default_factory=list)
    services: set[str] = field(default_factory=set)
    models: set[str] = field(default_factory=set)
    now: bool = False
    """Whether one of the replicas has ended, so that it writes no more files."""


class SampleGatherer:
    """A companion of the loop that gathers samples in the background. Failures are shown as `companion:samples` and retried.

    Files are removed only after a version includes them, and a version includes a file once: a crash in between loses nothing.
    """

    def __init__(self, loop: ReconcileLoop, files: SampleFiles, datasets: DatasetStore, commands: DatasetUseCases) -> None:
        self._loop = loop
        self._files = files
        self._datasets = datasets
        self._commands = commands
        self._lock = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()
        self._due = float("-inf")
        self._ended: set[JobKey] = set()
        """Runs that have ended on their node. Their remaining files are gathered even if this set is lost, only later."""
        loop.watchers.over.append(self._note_end)
        loop.companions.append(self)

    name = "samples"

    async def start(self) -> None:
        """Do nothing: the files are the state."""

    async def turn(self) -> float | None:
        """Check the files if it is time. Return the time of the next check, if a run samples requests."""
        now = self._loop.clock.now()
        if now >= self._due:
            self._due = now + LOOK_EVERY
            self._begin()
        active = any(SAMPLES_LABEL in job.labels for job in self._loop.snapshot.jobs.values())
        return self._due if active else None

    def has_news(self) -> bool:
        """Return False: files are gathered at their own interval."""
        return False

    async def close(self) -> None:
        """Wait until gathering in progress has finished."""
        await asyncio.gather(*self._background)

    async def gather(self) -> None:
        """Create versions of what is due now."""
        async with self._lock:
            ended = set(self._ended)
            by_dataset = await self._look()
            for dataset in sorted(by_dataset):
                waiting = by_dataset[dataset]
                if self._is_due(waiting):
                    with self._loop.faults.contain(f"data:{dataset}", "gather samples"):
                        await self._keep(dataset, waiting)
            self._ended -= ended

    def came(self, job: JobState, *, last: bool) -> None:
        """Handle a replica's file that has arrived from its node.

        `last`: the run has ended on that node, and may continue elsewhere as the same run.
        """
        if last:
            self._ended.add(job.key)
        if last or job.phase.over:
            self._begin()

    def _note_end(self, job: JobState) -> None:
        if SAMPLES_LABEL in job.labels:
            self._begin()

    def _begin(self) -> None:
        task = asyncio.create_task(self._gather_quietly())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _gather_quietly(self) -> None:
        with self._loop.faults.contain("companion:samples", "gather"):
            await self.gather()

    async def _look(self) -> dict[str, _PendingSamples]:
        by_dataset: dict[str, _PendingSamples] = {}
        for run in await asyncio.to_thread(self._files.runs):
            job = self._loop.store.get_job(run)
            if job is None or SAMPLES_LABEL not in job.labels:
                continue
            if job.phase.over:
                await asyncio.to_thread(self._files.finish, run)
            files = await asyncio.to_thread(self._files.complete, run)
            if files:
                namespace = run.namespace.removesuffix(OWN_NAMESPACE)
                waiting = by_dataset.setdefault(self._datasets.own(job.labels[SAMPLES_LABEL], namespace), _PendingSamples())
                waiting.files += files
                waiting.services.add(f"{namespace}/{job.labels[SERVICE_LABEL]}")
                waiting.models.add(job.spec.data["model"].removeprefix("model://"))
                waiting.now = waiting.now or job.phase.over or run in self._ended
        return by_dataset

    def _is_due(self, waiting: _PendingSamples) -> bool:
        oldest = min(file.closed for file in waiting.files)
        size = sum(file.size for file in waiting.files)
        return waiting.now or size >= GATHER_SIZE or self._loop.clock.now() >= oldest + GATHER_AFTER

    async def _keep(self, dataset: str, waiting: _PendingSamples) -> None:
        paths = {file.name: file.path for file in waiting.files}
        lineage = sorted(waiting.services), sorted(waiting.models)
        version = await asyncio.to_thread(self._datasets.gather, dataset, paths, self._loop.clock.now(), *lineage, LARGEST)
        await asyncio.to_thread(self._files.remove, waiting.files)
        self._commands.record(version, "RequestsSampled", f"{version}, from {' and '.join(lineage[0])}")
        if not self._commands.user_of(dataset):
            versions = [sampled for sampled in self._datasets.list() if sampled.name == dataset and sampled.services]
            for sampled in versions[:-VERSIONS]:
                await self._commands.delete(str(sampled))
