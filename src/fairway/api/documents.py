"""Routes that take documents: submit, apply, render; and the schema that editors read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from fairway.api.answer import PLAIN, json_answer, show
from fairway.api.asking import Asked
from fairway.api.showing import Showing
from fairway.app.application import Application
from fairway.app.submission import Submission
from fairway.errors import UsageError
from fairway.spec.document import read_data, read_documents, render
from fairway.spec.job import TrainingJob
from fairway.state.job import Origin
from fairway.views.applied import AppliedList, AppliedView, applied_text
from fairway.views.job import JobList
from fairway.views.listing import jobs_text
from fairway.views.plan import PlanView, plan_text, plan_view


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


class ApplyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an apply sends."""

    documents: str
    file: str = ""
    folder: str = ""
    origin: Origin = Origin()
    plan: bool = False


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
        documents = read_documents(body.documents, body.file) if body.document is None else [read_data(body.document, body.file)]
        submissions = [
            Submission(_placed(document, asked.namespace), body.origin, body.environment, body.files) for document in documents
        ]
        if body.plan:
            return await self._plan(asked, submissions)
        jobs = await self._application.submit_all(submissions)
        views = tuple([await self._show.new(job) for job in jobs])
        listed = JobList(views, "", len(views))
        return show(
            asked,
            views[0] if len(views) == 1 else listed,
            text=lambda page: jobs_text(listed, self._show.now(), page),
            called=lambda: (view.name for view in views),
            status=201,
        )

    async def apply(self, request: Request) -> Response:
        """Make it so: a document whose newest run asks for the same and has not failed is left alone, others start a run."""
        asked = Asked(request)
        body = await asked.body(ApplyBody)
        origin = body.origin if body.origin.folder else replace(body.origin, folder=body.folder)
        documents = read_documents(body.documents, body.file)
        submissions = [Submission(_placed(document, asked.namespace), origin) for document in documents]
        if body.plan:
            return await self._plan(asked, submissions, keep=True)
        results = [
            AppliedView("TrainingJob", job.key.namespace, job.key.name, "created" if made else "unchanged")
            for job, made in await self._application.apply(submissions)
        ]
        view = AppliedList(tuple(results))
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

    async def _plan(self, asked: Asked, submissions: list[Submission], *, keep: bool = False) -> Response:
        """What would happen. With `keep`, runs that stand as asked for are left alone, as an apply does."""
        views = []
        for submission in submissions:
            known = self._application.standing(submission) if keep else None
            if known is None:
                views.append(plan_view(await self._application.preview(submission)))
            else:
                views.append(PlanView((f"{known.key.name} would be left alone: it asks for the same",), (known.key.name,)))
        view = PlanView(
            tuple(sentence for one in views for sentence in one.sentences),
            tuple(name for one in views for name in one.jobs),
            tuple(document for one in views for document in one.documents),
        )
        return show(asked, view, text=lambda _page: plan_text(view), called=lambda: view.jobs)


def _placed(document: TrainingJob, namespace: str) -> TrainingJob:
    """The document in the caller's namespace, unless it names one itself."""
    if "namespace" in document.metadata.model_fields_set:
        return document
    return document.model_copy(update={"metadata": document.metadata.model_copy(update={"namespace": namespace})})
