"""Routes that take documents: submit, apply, render; and the schema that editors read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from fairway.api.answer import PLAIN, json_answer, show
from fairway.api.asking import Asked, placed
from fairway.api.services import applied_services, planned_services
from fairway.api.showing import Showing
from fairway.app.application import Application
from fairway.app.services import ServiceAsk
from fairway.app.submission import Submission
from fairway.errors import Mistake, RefusedError, SpecError, UsageError
from fairway.spec.document import read_data, read_documents, render
from fairway.spec.job import Metadata, TrainingJob
from fairway.spec.kinds import Document
from fairway.spec.queue import JobQueue
from fairway.spec.service import ModelService
from fairway.state.job import Origin
from fairway.state.queue import Queue, queue_of
from fairway.units.conditions import machine_variables
from fairway.units.trees import lay_over
from fairway.views.applied import AppliedList, AppliedView, applied_text
from fairway.views.job import JobList
from fairway.views.listing import jobs_text
from fairway.views.plan import PlanView, plan_text, plan_view
from fairway.views.queue import difference

CALL = "fairway.runtime.call"
"""The module that calls a function sent from Python."""


class SubmitBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a submit sends: documents as text, or one as data."""

    documents: str = ""
    document: dict[str, Any] | None = None
    file: str = ""
    """What mistakes name as the place."""
    origin: Origin = Origin()
    environment: dict[str, str] | None = None
    files: dict[str, bytes] = {}
    """Base64 on the wire."""
    plan: bool = False
    like: str = ""
    """A run whose document is meant; `document` is laid over it."""


class ApplyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The documents of one file."""

    documents: str
    file: str = ""
    folder: str = ""
    """Where relative paths of its documents start."""


class ApplyBody(ApplyFile, frozen=True, forbid_unknown_fields=True):
    """What an apply sends: the documents of one file, or of several."""

    origin: Origin = Origin()
    plan: bool = False
    more: tuple[ApplyFile, ...] = ()
    """Further files; all of them are applied, or none."""


class RenderBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a render sends."""

    documents: str
    to: str = "flat"
    file: str = ""


class Documents:
    """The routes that take documents."""

    def __init__(self, application: Application, showing: Showing) -> None:
        self._application = application
        self._show = showing

    def routes(self) -> list[BaseRoute]:
        """Where each is found."""
        return [
            Route("/v1/jobs", self.submit, methods=["POST"]),
            Route("/v1/apply", self.apply, methods=["POST"]),
            Route("/v1/render", self.render, methods=["POST"]),
            Route("/v1/schema", self.schema, methods=["GET"]),
        ]

    async def submit(self, request: Request) -> Response:
        """Queue a run for each document, all or none. Answers one run, or a list when there were several documents."""
        asked = Asked(request)
        body = await asked.body(SubmitBody)
        if bool(body.documents.strip()) == (body.document is not None):
            message = "the body must have either `documents` or `document`"
            raise UsageError(message, fix="send one of them")
        if body.like:
            body = self._like(asked, body)
        documents = read_documents(body.documents, body.file) if body.document is None else [read_data(body.document, body.file)]
        submissions = [
            Submission(placed(job, asked.namespace), body.origin, _environment(job, body.environment), body.files)
            for job in _only_jobs(documents, body.file)
        ]
        if body.plan:
            return await self._plan(asked, submissions)
        jobs = await self._application.submit_all(submissions, key=asked.key(body.origin.user))
        missing = [await self._application.submissions.missing(submission) for submission in submissions]
        views = tuple([await self._show.new(job, found) for job, found in zip(jobs, missing, strict=True)])
        listed = JobList(views, "", len(views))
        return show(
            asked,
            views[0] if len(views) == 1 else listed,
            text=lambda page: jobs_text(listed, self._show.now(), page),
            called=lambda: (view.name for view in views),
            status=201,
        )

    def _like(self, asked: Asked, body: SubmitBody) -> SubmitBody:
        """The same with the document of another run below what is asked for, in that run's folder."""
        job = self._application.find(asked.namespace, body.like)
        if any(role.command[1:3] == ("-m", CALL) for role in job.spec.roles.values()):
            message = f"{job.key.name} calls a Python function, which only its program has"
            raise RefusedError(message, fix="submit the function again from Python")
        meta = Metadata(name=job.series, namespace=job.key.namespace, labels=job.labels)
        below = TrainingJob(metadata=meta, spec=job.spec).model_dump(mode="json", by_alias=True, exclude_unset=True)
        document = lay_over(below, body.document or {})
        return msgspec.structs.replace(
            body,
            document={"apiVersion": "fairway.dev/v1alpha1", "kind": "TrainingJob", **document},
            origin=replace(
                body.origin,
                folder=job.origin.folder,
                interpreter=job.origin.interpreter,
                code_digest=job.origin.code_digest,
            ),
        )

    async def apply(self, request: Request) -> Response:
        """Make it so, all or none.

        Queues and services are made or changed. A job whose newest run asks for the same and has not failed is left alone;
        others start a run.
        """
        asked = Asked(request)
        body = await asked.body(ApplyBody)
        documents = _read_files(body)
        queues = _described_once([queue_of(document) for document, _ in documents if isinstance(document, JobQueue)])
        submissions = [
            Submission(placed(job, asked.namespace), origin) for job, origin in documents if isinstance(job, TrainingJob)
        ]
        services = [
            ServiceAsk(placed(service, asked.namespace), origin)
            for service, origin in documents
            if isinstance(service, ModelService)
        ]
        key = asked.key(body.origin.user)
        # What is refused is refused before anything is changed.
        planned = await planned_services(self._application.services, services)
        if body.plan:
            return await self._plan(asked, submissions, queues, planned, keep=True)
        # Asked before: a queue that was made an object may be known at once.
        put = [AppliedView("JobQueue", "", queue.name, self._application.queues.change(queue)) for queue in queues]
        await self._application.publish([document for document, _ in documents if isinstance(document, JobQueue)])
        runs = [
            AppliedView("TrainingJob", job.key.namespace, job.key.name, "created" if made else "unchanged")
            for job, made in await self._application.apply(submissions, queues, body.origin.user, key)
        ]
        served = await applied_services(self._application.services, services, key)
        done = {JobQueue: iter(put), TrainingJob: iter(runs), ModelService: iter(served)}
        view = AppliedList(tuple(next(done[type(document)]) for document, _ in documents))
        return show(
            asked, view, text=lambda page: applied_text(view, page), called=lambda: (result.name for result in view.applied)
        )

    async def render(self, request: Request) -> Response:
        """Documents in another spelling, as YAML."""
        asked = Asked(request)
        body = await asked.body(RenderBody)
        documents = read_documents(body.documents, body.file)
        return Response("---\n".join(render(document, body.to) for document in documents), media_type=PLAIN)

    async def schema(self, request: Request) -> Response:
        """The JSON Schema of documents."""
        # Made from all models at once, which is dear and rarely asked for.
        from fairway.spec.schema import json_schema  # noqa: PLC0415

        return json_answer(json_schema())

    async def _plan(
        self,
        asked: Asked,
        submissions: Sequence[Submission],
        queues: Sequence[Queue] = (),
        services: Sequence[PlanView] = (),
        *,
        keep: bool = False,
    ) -> Response:
        """What would happen. With `keep`, runs that stand as asked for are left alone, as an apply does."""
        views = [PlanView((self._planned(queue),), (queue.name,)) for queue in queues]
        views.extend(services)
        for submission in submissions:
            known = self._application.standing(submission, queues) if keep else None
            if known is None:
                plan = await self._application.preview(submission, queues)
                objects = self._application.objects_of(plan)
                view = plan_view(plan)
                missing = tuple(await self._application.submissions.missing(submission))
                views.append(msgspec.structs.replace(view, documents=objects or view.documents, missing=missing))
            else:
                views.append(PlanView((f"{known.key.name} would be left alone: it asks for the same",), (known.key.name,)))
        view = PlanView(
            tuple(sentence for one in views for sentence in one.sentences),
            tuple(name for one in views for name in one.jobs),
            tuple(document for one in views for document in one.documents),
            tuple(text for one in views for text in one.missing),
        )
        return show(asked, view, text=lambda _page: plan_text(view), called=lambda: view.jobs)

    def _planned(self, queue: Queue) -> str:
        action = self._application.queues.change(queue)
        if action == "unchanged":
            return f"the queue {queue.name} would be left alone: it is as asked for"
        if action == "created":
            return f"the queue {queue.name} would be created"
        return f"the queue {queue.name} would be changed: {difference(self._application.queues.find(queue.name), queue)}"


def _read_files(body: ApplyBody) -> list[tuple[Document, Origin]]:
    """The documents of every file with where they come from; the mistakes of all files at once."""
    found: list[tuple[Document, Origin]] = []
    mistakes: list[Mistake] = []
    for file in (body, *body.more):
        folder = body.origin.folder if file is body and body.origin.folder else file.folder
        try:
            documents = read_documents(file.documents, file.file)
            found.extend((document, replace(body.origin, folder=folder)) for document in documents)
        except SpecError as error:
            mistakes.extend(error.mistakes)
    if mistakes:
        raise SpecError(mistakes)
    return found


def _environment(job: TrainingJob, given: dict[str, str] | None) -> dict[str, str] | None:
    """What a run gets of the environment that was sent: all of it in place, else the machine's part."""
    return given if given is None or job.spec.code.in_place else machine_variables(given)


def _only_jobs(documents: Sequence[Document], file: str) -> Iterator[TrainingJob]:
    for document in documents:
        if not isinstance(document, TrainingJob):
            message = f"{file or 'the text'} holds a {document.kind}, which is applied, not submitted"
            raise UsageError(message, fix=f"fairway apply -f {file or 'FILE'}")
        yield document


def _described_once(queues: Sequence[Queue]) -> Sequence[Queue]:
    names = [queue.name for queue in queues]
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        message = f"the queue {twice} is described twice"
        raise UsageError(message, fix="keep one of the documents")
    return queues
