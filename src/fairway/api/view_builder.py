"""Create views from state, with what the routes add: the time, the home, the position in the queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fairway.app.application import Application
from fairway.state.job import JobState
from fairway.state.mlflow_record import TrackedRun
from fairway.views.job import JobView, idle_gpus, job_view
from fairway.views.node import node_view


@dataclass(frozen=True, slots=True)
class DaemonInfo:
    """Information about the daemon."""

    version: str
    pid: int
    home: str
    router: str = "fairway"
    """The router that new services get: `fairway` or `envoy`."""
    envoy: str = ""
    """The path of Envoy, or how to install it."""
    image: str = ""
    """In a cluster, the image of Fairway itself."""


@dataclass(frozen=True, slots=True)
class ViewBuilder:
    """Creates views."""

    application: Application
    about: DaemonInfo
    now: Callable[[], float]

    def brief(self, job: JobState) -> JobView:
        """Return a run as a line of a list: without tasks and without the document."""
        tasks = [] if job.phase.over else self.application.tasks(job)
        return job_view(job, tasks, self.now(), folder=self.folder(job), tasks_too=False, spec_too=False)

    def full(self, job: JobState, *, spec_too: bool = True, warnings: Iterable[str] = ()) -> JobView:
        """Return a run with all details."""
        tracked = self.application.store.tracked(TrackedRun, job.key.namespace, job.key.name)
        versions = [*map(str, self.application.models.of_job(job)), *(tracked.versions if tracked is not None else ())]
        refused = self.application.models.refusal(job)
        return job_view(
            job,
            self.application.tasks(job),
            self.now(),
            position=0 if job.phase.over else self.application.position(job),
            folder=self.folder(job),
            warnings=(*warnings, refused) if refused else warnings,
            tracked=tracked,
            models=dict.fromkeys(versions),
            faults=self.application.loop.faults.of(str(job.key)),
            spec_too=spec_too,
        )

    async def new(self, job: JobState, missing: Iterable[str] = ()) -> JobView:
        """Return a run that was just submitted, with warnings about likely omissions and missing dependencies."""
        nodes, tasks = await self.application.nodes()
        idle = idle_gpus(job, sum(node_view(node, tasks).gpus_free for node in nodes))
        return self.full(job, warnings=[*missing, *([idle] if idle else [])])

    def live(self, job: JobState) -> JobView:
        """Return a run that is being watched: without the document, which does not change."""
        return self.full(job, spec_too=False)

    def folder(self, job: JobState) -> str:
        """Return the folder of the run's files; empty if it is not a folder of the caller's machine."""
        return f"{self.about.home}/jobs/{job.key.namespace}/{job.key.name}" if self.about.home else ""
