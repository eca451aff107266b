"""From state to views, with what the routes know: the time, the home, the queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fairway.app.application import Application
from fairway.state.job import Job
from fairway.state.tracking import TrackedRun
from fairway.views.job import JobView, idle_gpus, job_view
from fairway.views.node import node_view


@dataclass(frozen=True, slots=True)
class About:
    """What the daemon says of itself."""

    version: str
    pid: int
    home: str
    router: str = "fairway"
    """The router that new services get: `fairway` or `envoy`."""
    envoy: str = ""
    """Where Envoy is, or how to get it."""
    image: str = ""
    """On a cluster, the image that Fairway itself runs in."""


@dataclass(frozen=True, slots=True)
class Showing:
    """Builds views."""

    application: Application
    about: About
    now: Callable[[], float]

    def brief(self, job: Job) -> JobView:
        """A run as a line of a list: without tasks and without the document."""
        tasks = [] if job.phase.over else self.application.tasks(job)
        return job_view(job, tasks, self.now(), folder=self.folder(job), tasks_too=False, spec_too=False)

    def full(self, job: Job, *, spec_too: bool = True, warnings: Iterable[str] = ()) -> JobView:
        """All that is known of a run."""
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

    async def new(self, job: Job, missing: Iterable[str] = ()) -> JobView:
        """A run that was just submitted, with what its author may have forgotten and what it will miss."""
        nodes, tasks = await self.application.nodes()
        idle = idle_gpus(job, sum(node_view(node, tasks).gpus_free for node in nodes))
        return self.full(job, warnings=[*missing, *([idle] if idle else [])])

    def live(self, job: Job) -> JobView:
        """A run while it is watched: its document does not change, so it is left out."""
        return self.full(job, spec_too=False)

    def folder(self, job: Job) -> str:
        """Where the engine keeps the run's files; empty where that is no folder of the caller's machine."""
        return f"{self.about.home}/jobs/{job.key.namespace}/{job.key.name}" if self.about.home else ""
