"""Routes of existing runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from fairway.api.http.parameter import RequestParameters
from fairway.api.http.response import LINES, StreamingBody, show
from fairway.api.stream.run_stream import mixed_logs, plain_logs, stamped, watch
from fairway.api.view_builder import ViewBuilder
from fairway.app.application import Application
from fairway.app.port.port import JobFilter, LogQuery
from fairway.errors import NotFoundError, RefusedError, UsageError
from fairway.plan.task_expansion import folds_into_one
from fairway.state.job import JobKey, JobState
from fairway.state.service import ServiceKey
from fairway.units import suggestion
from fairway.views.diagnosis.run_explanation import left_for, why_view
from fairway.views.event import event_list
from fairway.views.job import JobList, split_attempts
from fairway.views.job_page import detail_text, why_text
from fairway.views.list_table import SORTS, events_text, jobs_text, metrics_text, sorted_jobs, top_text
from fairway.views.metric import metric_list
from fairway.views.plan import PlanView, plan_text
from fairway.views.text import phrase
from fairway.views.text.log_format import LogMerger
from fairway.views.usage import Used, usage_list, usage_text, with_use

EVERYTHING = 1_000_000
"""Maximum number of runs that are sorted by anything but age."""
CURVE_POINTS = 400
"""Maximum number of points that the page of a run can draw."""


class StopBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `stop`."""

    now: bool = False
    all: bool = False
    plan: bool = False


class JobRoutes:
    """The routes under /v1/jobs/{name}, and the lists."""

    def __init__(self, application: Application, showing: ViewBuilder) -> None:
        self._application = application
        self._show = showing

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        job_path = "/v1/jobs/{name}"
        return [
            Route("/v1/jobs", self.list, methods=["GET"]),
            Route(job_path, self.get, methods=["GET"]),
            Route(job_path, self.delete, methods=["DELETE"]),
            Route(f"{job_path}/stop", self.stop, methods=["POST"]),
            Route(f"{job_path}/resume", self.resume, methods=["POST"]),
            Route(f"{job_path}/events", self.events, methods=["GET"]),
            Route(f"{job_path}/why", self.why, methods=["GET"]),
            Route(f"{job_path}/metrics", self.metrics, methods=["GET"]),
            Route(f"{job_path}/logs", self.logs, methods=["GET"]),
            Route(f"{job_path}/watch", self.watch, methods=["GET"]),
            Route("/v1/events", self.all_events, methods=["GET"]),
            Route("/v1/top/jobs", self.top, methods=["GET"]),
            Route("/v1/top/jobs/{name}", self.top_one, methods=["GET"]),
        ]

    async def list(self, request: Request) -> Response:
        """List runs, newest first. `namespace=*` means all."""
        params = RequestParameters(request)
        job_filter = JobFilter(
            namespace="" if params.namespace == "*" else params.namespace,
            series=params.text("series"),
            phases=params.phases(),
            labels=params.labels(),
            limit=params.number("limit", 100, least=1),
            before=params.text("before"),
        )
        view = self._sorted(params, job_filter) if params.text("sort") else self._listed(job_filter)
        filtered = bool(job_filter.series or job_filter.phases or job_filter.labels or job_filter.before)
        return show(
            params,
            view,
            text=lambda page: jobs_text(view, self._now(), page, filtered=filtered),
            called=lambda: (job.name for job in view.jobs),
        )

    def _listed(self, wanted: JobFilter) -> JobList:
        page = self._application.list_jobs(wanted)
        return JobList(tuple(self._show.brief(job) for job in page.jobs), page.next, page.total)

    def _sorted(self, asked: RequestParameters, wanted: JobFilter) -> JobList:
        """Sort by something other than age.

        All matching runs are sorted before the first are returned, and there are no pages.
        """
        key = asked.text("sort")
        if key.lstrip("-") not in SORTS:
            near = suggestion.did_you_mean(key.lstrip("-"), SORTS)
            message = f"sort={key!r} is not a sort order"
            raise UsageError(message, fix=near or f"use one of {', '.join(SORTS)}; a dash before it for the reverse")
        if wanted.before:
            message = "sort and before cannot be combined: only lists in order of age have pages"
            raise UsageError(message, fix="leave one of them out")
        listed = self._listed(replace(wanted, limit=EVERYTHING))
        jobs = sorted_jobs(listed.jobs, key)
        return JobList(jobs[: wanted.limit], "", listed.total)

    async def get(self, request: Request) -> Response:
        """Return one run with its tasks."""
        params = RequestParameters(request)
        job = self._find(params)
        view = self._show.full(job)
        return show(
            params,
            view,
            text=lambda page: detail_text(view, self._application.points(job, limit=CURVE_POINTS), self._now(), page),
            called=lambda: [view.name],
        )

    async def delete(self, request: Request) -> Response:
        """Delete one run, or with `all` every run of the name. `bare`: the caller did not specify that it is a job."""
        params = RequestParameters(request)
        if params.flag("bare"):
            self._refuse_ambiguous(params)
        unreadable = JobKey(params.namespace, params.name)
        if self._application.is_unreadable(unreadable) and not params.flag("plan"):
            await self._application.delete(unreadable)
            return self._deleted(params, [params.name])
        runs = self._application.runs(params.namespace, params.name)
        if len(runs) > 1 and not params.flag("all"):
            raise _several(params.name, runs, "delete")
        if params.flag("plan"):
            return self._plan(
                params,
                runs,
                "would be deleted with its logs, checkpoints and outputs",
                "would be killed and deleted with all its files",
            )
        for job in runs:
            await self._application.delete(job.key)
        return self._deleted(params, [job.key.name for job in runs])

    def _deleted(self, asked: RequestParameters, names: Sequence[str]) -> Response:
        return show(
            asked,
            {"deleted": list(names)},
            text=lambda _page: "".join(f"{name} deleted\n" for name in names),
            called=lambda: names,
        )

    def _refuse_ambiguous(self, asked: RequestParameters) -> None:
        """Refuse a bare name that is also a queue or a service: deletion must be unambiguous."""
        services = self._application.services
        is_service = services is not None and services.is_kept(ServiceKey(asked.namespace, asked.name))
        for other, exists in (("queue", self._application.queues.is_kept(asked.name)), ("service", is_service)):
            if exists:
                message = f"{asked.name} is a {other} too; nothing was changed"
                raise RefusedError(message, fix=f"say which: fairway delete job/{asked.name} or {other}/{asked.name}")

    async def stop(self, request: Request) -> Response:
        """Stop a run; the name of a series means its only unfinished run."""
        params = RequestParameters(request)
        body = await params.body(StopBody)
        runs = self._application.runs(params.namespace, params.name)
        active = [job for job in runs if not job.phase.over]
        if len(active) > 1 and not (body.all or params.flag("all")):
            raise _several(params.name, active, "stop")
        if body.plan:
            return self._plan(
                params,
                active or runs[:1],
                "is over already; nothing would change",
                "would be asked to end, and killed after its grace period",
            )
        stopped = [await self._application.stop(job.key, now=body.now) for job in active or runs[:1]]
        return self._changed(params, stopped)

    async def resume(self, request: Request) -> Response:
        """Restart a stopped or failed run from its last checkpoint."""
        params = RequestParameters(request)
        return self._changed(params, [await self._application.resume(self._find(params).key, params.key())])

    async def events(self, request: Request) -> Response:
        """Return the events of a run and its tasks, oldest first."""
        params = RequestParameters(request)
        key = str(self._find(params).key)
        view = event_list(self._application.events(key, params.number("limit", 1000, least=1)))
        return show(
            params,
            view,
            text=lambda page: events_text(view.events, self._now(), page, run=key),
            called=lambda: (event.reason for event in view.events),
        )

    async def all_events(self, request: Request) -> Response:
        """Return all events, oldest first; with `within`, only those of that namespace."""
        params = RequestParameters(request)
        limit, namespace = params.number("limit", 200, least=1), params.text("within")
        view = event_list(self._application.events_in(namespace, limit) if namespace else self._application.events("", limit))
        return show(
            params,
            view,
            text=lambda page: events_text(view.events, self._now(), page),
            called=lambda: (event.reason for event in view.events),
        )

    async def why(self, request: Request) -> Response:
        """Explain the state of a run, and what would help."""
        params = RequestParameters(request)
        job = self._find(params)
        answer = None if job.phase.over else await self._application.waiting.answer(job)
        hold, waiting = (answer.hold, answer.view) if answer is not None else (None, None)
        faults = self._application.loop.faults.of(str(job.key))
        departure = left_for(job, self._application.events(str(job.key))) if job.evictions else ""
        view = why_view(job, self._application.tasks(job), self._now(), hold, waiting, faults, left=departure)
        return show(params, view, text=lambda page: why_text(view, self._now(), page), called=lambda: [view.reason])

    async def metrics(self, request: Request) -> Response:
        """Return the metric points of a run in order of time."""
        params = RequestParameters(request)
        job = self._find(params)
        metric, limit = params.text("metric"), params.number("limit", 2000, least=1)
        points = self._application.points(job, metric, limit)
        view = metric_list(points, metric, job.progress.summaries, job.spec.stop.goals)
        if metric and not view.names:
            self._refuse_unknown(job, metric)
        return show(params, view, text=lambda page: metrics_text(view, page), called=lambda: view.names)

    def _refuse_unknown(self, job: JobState, metric: str) -> None:
        """Refuse a metric that a run with metrics never reported; a run without any may still report it."""
        names = metric_list(self._application.points(job, limit=CURVE_POINTS)).names
        if names:
            near = suggestion.did_you_mean(metric, names)
            message = f"{job.key.name} has no metric {metric!r}; it has {phrase.listing(list(names))}"
            raise NotFoundError(message, fix=near or f"name one of them: --metric {names[0]}")

    async def logs(self, request: Request) -> ASGIApp:
        """Return the output of the tasks; lines of several tasks are prefixed with the task's name."""
        params = RequestParameters(request)
        job = self._find(params)
        query = self._log_query(params, job, follow=params.flag("follow"))
        streams = self._streams(job, query)
        chunks = self._application.logs(job, query)
        if query.timed:
            chunks = stamped(chunks)
        headings = query.attempt == -1
        note = _removed(job, streams) if query.tail is None and query.since is None else ""
        if params.flag("prefix", default=len(streams) > 1):
            return StreamingBody(
                mixed_logs(chunks, LogMerger(streams, colour=params.flag("colour")), headings=headings), note=note
            )
        return StreamingBody(plain_logs(chunks, headings=headings), note=note)

    async def watch(self, request: Request) -> ASGIApp:
        """Stream all changes of a run until it is over, one JSON object per line."""
        params = RequestParameters(request)
        job = self._find(params)
        query = replace(self._log_query(params, job, follow=True), streams=True) if params.flag("logs", default=True) else None
        return StreamingBody(watch(self._application, job, query, self._show.live), LINES)

    async def top(self, request: Request) -> Response:
        """Return resources and usage of the unfinished runs, and their speed."""
        params = RequestParameters(request)
        namespace = "" if params.namespace == "*" else params.namespace
        job_filter = JobFilter(
            namespace=namespace,
            phases=("Running", "Starting", "Restarting", "Stopping"),
            limit=params.number("limit", 1000, least=1),
        )
        jobs = self._application.list_jobs(job_filter).jobs
        running = [task.key for job in jobs for task in split_attempts(job, self._application.tasks(job))[0]]
        used = await self._application.engine.usage(running)
        by_run: dict[JobKey, dict[str, Used]] = {}
        for key, use in used.items():
            by_run.setdefault(key.run, {})[key.task] = (use.cpu, use.memory, use.gpu)
        views = tuple(with_use(self._show.live(job), by_run.get(job.key, {})) for job in jobs)
        return show(
            params,
            JobList(views, "", len(views)),
            text=lambda page: top_text(views, page),
            called=lambda: (job.name for job in views),
        )

    async def top_one(self, request: Request) -> Response:
        """Return the current usage of each task of a run, and its speed."""
        params = RequestParameters(request)
        job = self._find(params)
        current, _ = split_attempts(job, self._application.tasks(job))
        used = await self._application.engine.usage([task.key for task in current])
        points = self._application.points(job, limit=CURVE_POINTS * max(1, len(current)))
        view = usage_list(job, current, {key: (use.cpu, use.memory, use.gpu) for key, use in used.items()}, points)
        return show(params, view, text=lambda page: usage_text(view, page), called=lambda: (task.name for task in view.tasks))

    def _now(self) -> float:
        return self._show.now()

    def _find(self, asked: RequestParameters) -> JobState:
        return self._application.find(asked.namespace, asked.name)

    def _changed(self, asked: RequestParameters, jobs: Sequence[JobState]) -> Response:
        """Return the new state of the changed runs: one run, or a list of several."""
        views = [self._show.full(job) for job in jobs]
        view = views[0] if len(views) == 1 else JobList(tuple(views), "", len(views))
        listed = JobList(tuple(views), "", len(views))
        return show(
            asked,
            view,
            text=lambda page: jobs_text(listed, self._now(), page),
            called=lambda: (run_view.name for run_view in views),
        )

    def _plan(self, asked: RequestParameters, jobs: Sequence[JobState], when_over: str, when_not: str) -> Response:
        names = tuple(job.key.name for job in jobs)
        view = PlanView(tuple(f"{job.key.name} {when_over if job.phase.over else when_not}" for job in jobs), names)
        return show(asked, view, text=lambda _page: plan_text(view), called=lambda: names)

    def _log_query(self, asked: RequestParameters, job: JobState, *, follow: bool) -> LogQuery:
        role = asked.text("role")
        if role and role not in job.spec.roles:
            near = suggestion.did_you_mean(role, job.spec.roles)
            message = f"{job.key.name} has no role {role!r}"
            raise NotFoundError(message, fix=near or f"its roles are {phrase.listing(list(job.spec.roles))}")
        attempt = -1 if asked.text("attempt") == "all" else asked.optional_number("attempt", least=-1)
        return LogQuery(
            role=role,
            index=asked.optional_number("index"),
            attempt=attempt,
            tail=asked.optional_number("tail"),
            since=asked.since(self._now()),
            grep=asked.pattern("grep"),
            follow=follow,
            timed=asked.flag("timestamps"),
        )

    def _streams(self, job: JobState, query: LogQuery) -> Sequence[str]:
        """Return the names under which the selected tasks print."""
        current, earlier = split_attempts(job, self._application.tasks(job))
        candidates = [*current, *earlier] if query.attempt is not None else current
        tasks = [task for task in candidates if query.role in ("", task.key.role) and query.index in (None, task.key.index)]
        if not tasks and query.index is not None and candidates:
            names = phrase.listing(list(dict.fromkeys(task.key.task for task in candidates)))
            requested = f"{query.role or 'task'}-{query.index}"
            message = f"{job.key.name} has no {requested}"
            raise NotFoundError(message, fix=f"it has {names}")
        if not candidates:
            most = {name: 1 if folds_into_one(job) else role.replicas.max for name, role in job.spec.roles.items()}
            roles = [name for name in most if query.role in ("", name)]
            return [f"{name}-{index}" for name in roles for index in range(most[name]) if query.index in (None, index)]
        streams = {f"{task.key.task}.{rank}" if rank else task.key.task: None for task in tasks for rank in range(task.processes)}
        return list(streams)


def _several(name: str, runs: Sequence[JobState], verb: str) -> RefusedError:
    shown = phrase.listing([job.key.name for job in runs[:5]]) if len(runs) <= 5 else f"{runs[-1].key.name} to {runs[0].key.name}"
    return RefusedError(
        f"{name} means {len(runs)} runs ({shown}); nothing was changed", fix=f"name one of them, or: fairway {verb} --all {name}"
    )


def _removed(job: JobState, tasks: Sequence[str]) -> str:
    """Describe what is missing at the beginning of these logs."""
    limit = job.spec.keep.log_size
    return "; ".join(phrase.removed(task, count, limit) for task, count in job.logs_removed.items() if task in tasks)
