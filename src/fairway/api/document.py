"""Routes that accept documents: submit, apply, render; and the JSON schema for editors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from fairway.api.http.parameter import RequestParameters, placed
from fairway.api.http.response import PLAIN, json_answer, show
from fairway.api.service import applied_services, planned_services
from fairway.api.view_builder import ViewBuilder
from fairway.app.application import Application
from fairway.app.service import ServiceRequest
from fairway.app.submission import Submission
from fairway.errors import DocumentMistake, RefusedError, SpecError, UsageError
from fairway.spec.job import DocumentMetadata, TrainingJob
from fairway.spec.kind import Document
from fairway.spec.queue import JobQueue
from fairway.spec.service import ModelService
from fairway.spec.text.document import read_data, read_documents, render
from fairway.state.job import SubmissionOrigin
from fairway.state.queue import Queue, queue_of
from fairway.units.environment_variable import machine_variables
from fairway.units.tree import lay_over
from fairway.views.apply_result import ApplyResultList, ApplyResultView, applied_text
from fairway.views.job import JobList
from fairway.views.list_table import jobs_text
from fairway.views.plan import PlanView, plan_text, plan_view
from fairway.views.queue import difference

CALL = "fairway.runtime.call"
"""The module that calls a function sent from Python."""


class SubmitBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a submit: documents as text, or one document as data."""

    documents: str = ""
    document: dict[str, Any] | None = None
    file: str = ""
    """File name used in error messages."""
    origin: SubmissionOrigin = SubmissionOrigin()
    environment: dict[str, str] | None = None
    files: dict[str, bytes] = {}
    """Base64 on the wire."""
    plan: bool = False
    like: str = ""
    """A run whose document is reused; `document` is merged over it."""


class ApplyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The documents of one file."""

    documents: str
    file: str = ""
    folder: str = ""
    """Folder for relative paths in its documents."""


class ApplyBody(ApplyFile, frozen=True, forbid_unknown_fields=True):
    """The body of an apply: the documents of one file, or of several."""

    origin: SubmissionOrigin = SubmissionOrigin()
    plan: bool = False
    more: tuple[ApplyFile, ...] = ()
    """More files; all of them are applied, or none."""


class RenderBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a render."""

    documents: str
    to: str = "flat"
    file: str = ""


class DocumentRoutes:
    """The routes that accept documents."""

    def __init__(self, application: Application, showing: ViewBuilder) -> None:
        self._application = application
        self._show = showing

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        return [
            Route("/v1/jobs", self.submit, methods=["POST"]),
            Route("/v1/apply", self.apply, methods=["POST"]),
            Route("/v1/render", self.render, methods=["POST"]),
            Route("/v1/schema", self.schema, methods=["GET"]),
        ]

    async def submit(self, request: Request) -> Response:
        """Queue a run for each document, all or none. Responds with one run, or with a list for several documents."""
        params = RequestParameters(request)
        body = await params.body(SubmitBody)
        if bool(body.documents.strip()) == (body.document is not None):
            message = "the body must have either `documents` or `document`"
            raise UsageError(message, fix="send one of them")
        if body.like:
            body = self._like(params, body)
        documents = read_documents(body.documents, body.file) if body.document is None else [read_data(body.document, body.file)]
        submissions = [
            Submission(placed(job, params.namespace), body.origin, _environment(job, body.environment), body.files)
            for job in _only_jobs(documents, body.file)
        ]
        if body.plan:
            return await self._plan(params, submissions)
        jobs = await self._application.submit_all(submissions, key=params.key(body.origin.user))
        missing = [await self._application.submissions.missing(submission) for submission in submissions]
        views = tuple([await self._show.new(job, lacks) for job, lacks in zip(jobs, missing, strict=True)])
        listed = JobList(views, "", len(views))
        return show(
            params,
            views[0] if len(views) == 1 else listed,
            text=lambda page: jobs_text(listed, self._show.now(), page),
            called=lambda: (view.name for view in views),
            status=201,
        )

    def _like(self, asked: RequestParameters, body: SubmitBody) -> SubmitBody:
        """Merge the request's document over that of another run, and use that run's folder."""
        job = self._application.find(asked.namespace, body.like)
        if any(role.command[1:3] == ("-m", CALL) for role in job.spec.roles.values()):
            message = f"{job.key.name} calls a Python function, which only its program has"
            raise RefusedError(message, fix="submit the function again from Python")
        meta = DocumentMetadata(name=job.series, namespace=job.key.namespace, labels=job.labels)
        base = TrainingJob(metadata=meta, spec=job.spec).model_dump(mode="json", by_alias=True, exclude_unset=True)
        document = lay_over(base, body.document or {})
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
        """Apply documents, all or none.

        Queues and services are created or changed. A job whose newest run has the same spec and has not failed stays unchanged;
        any other job starts a run.
        """
        params = RequestParameters(request)
        body = await params.body(ApplyBody)
        documents = _read_files(body)
        queues = _described_once([queue_of(document) for document, _ in documents if isinstance(document, JobQueue)])
        submissions = [
            Submission(placed(job, params.namespace), origin) for job, origin in documents if isinstance(job, TrainingJob)
        ]
        services = [
            ServiceRequest(placed(service, params.namespace), origin)
            for service, origin in documents
            if isinstance(service, ModelService)
        ]
        key = params.key(body.origin.user)
        # All refusals are raised before anything is changed.
        planned = await planned_services(self._application.services, services)
        if body.plan:
            return await self._plan(params, submissions, queues, planned, keep=True)
        # Determined before publishing: a published queue may be known at once.
        queue_results = [ApplyResultView("JobQueue", "", queue.name, self._application.queues.change(queue)) for queue in queues]
        await self._application.publish([document for document, _ in documents if isinstance(document, JobQueue)])
        run_results = [
            ApplyResultView("TrainingJob", job.key.namespace, job.key.name, "created" if created else "unchanged")
            for job, created in await self._application.apply(submissions, queues, body.origin.user, key)
        ]
        service_results = await applied_services(self._application.services, services, key)
        results = {JobQueue: iter(queue_results), TrainingJob: iter(run_results), ModelService: iter(service_results)}
        view = ApplyResultList(tuple(next(results[type(document)]) for document, _ in documents))
        return show(
            params, view, text=lambda page: applied_text(view, page), called=lambda: (result.name for result in view.applied)
        )

    async def render(self, request: Request) -> Response:
        """Return documents in another notation, as YAML."""
        params = RequestParameters(request)
        body = await params.body(RenderBody)
        documents = read_documents(body.documents, body.file)
        return Response("---\n".join(render(document, body.to) for document in documents), media_type=PLAIN)

    async def schema(self, request: Request) -> Response:
        """Return the JSON Schema of documents."""
        # Generated from all models at once, which is expensive and rarely needed.
        from fairway.spec.json_schema import json_schema  # noqa: PLC0415

        return json_answer(json_schema())

    async def _plan(
        self,
        asked: RequestParameters,
        submissions: Sequence[Submission],
        queues: Sequence[Queue] = (),
        services: Sequence[PlanView] = (),
        *,
        keep: bool = False,
    ) -> Response:
        """Return what would happen. With `keep`, runs that already match stay unchanged, as in an apply."""
        views = [PlanView((self._planned(queue),), (queue.name,)) for queue in queues]
        views.extend(services)
        for submission in submissions:
            current = self._application.standing(submission, queues) if keep else None
            if current is None:
                plan = await self._application.preview(submission, queues)
                objects = self._application.objects_of(plan)
                view = plan_view(plan)
                missing = tuple(await self._application.submissions.missing(submission))
                views.append(msgspec.structs.replace(view, documents=objects or view.documents, missing=missing))
            else:
                views.append(
                    PlanView((f"{current.key.name} would not change: it already matches its document",), (current.key.name,))
                )
        view = PlanView(
            tuple(sentence for part in views for sentence in part.sentences),
            tuple(name for part in views for name in part.jobs),
            tuple(document for part in views for document in part.documents),
            tuple(text for part in views for text in part.missing),
        )
        return show(asked, view, text=lambda _page: plan_text(view), called=lambda: view.jobs)

    def _planned(self, queue: Queue) -> str:
        action = self._application.queues.change(queue)
        if action == "unchanged":
            return f"the queue {queue.name} would not change: it already matches its document"
        if action == "created":
            return f"the queue {queue.name} would be created"
        return f"the queue {queue.name} would be changed: {difference(self._application.queues.find(queue.name), queue)}"


def _read_files(body: ApplyBody) -> list[tuple[Document, SubmissionOrigin]]:
    """Return the documents of all files with their origin; raises the mistakes of all files at once."""
    all_documents: list[tuple[Document, SubmissionOrigin]] = []
    mistakes: list[DocumentMistake] = []
    for file in (body, *body.more):
        folder = body.origin.folder if file is body and body.origin.folder else file.folder
        try:
            documents = read_documents(file.documents, file.file)
            all_documents.extend((document, replace(body.origin, folder=folder)) for document in documents)
        except SpecError as error:
            mistakes.extend(error.mistakes)
    if mistakes:
        raise SpecError(mistakes)
    return all_documents


def _environment(job: TrainingJob, given: dict[str, str] | None) -> dict[str, str] | None:
    """Return the environment variables for a run: all of them in place, otherwise only the machine-specific part."""
    return given if given is None or job.spec.code.in_place else machine_variables(given)


def _only_jobs(documents: Sequence[Document], file: str) -> Iterator[TrainingJob]:
    for document in documents:
        if not isinstance(document, TrainingJob):
            message = f"{file or 'the text'} holds a {document.kind}, which is applied, not submitted"
            raise UsageError(message, fix=f"fairway apply -f {file or 'FILE'}")
        yield document


def _described_once(queues: Sequence[Queue]) -> Sequence[Queue]:
    names = [queue.name for queue in queues]
    duplicate = next((name for name in names if names.count(name) > 1), "")
    if duplicate:
        message = f"the queue {duplicate} is described twice"
        raise UsageError(message, fix="keep one of the documents")
    return queues
