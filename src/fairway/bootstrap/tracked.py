"""The MLflow interface of the operator for pods: the same routes as on a single machine, beside the other routes for pods."""

from __future__ import annotations

from pathlib import Path

from starlette.types import ASGIApp

from fairway.api.mlflow.asgi import make_mlflow
from fairway.app.application import Application
from fairway.app.tracking.model import TrackedModelUseCases
from fairway.app.tracking.run import TokenCaller, TrackingUseCases
from fairway.engines.local.artifact import LocalArtifacts
from fairway.engines.local.home import EngineHome
from fairway.state.job import JobKey


def tracked(home: Path, application: Application, secret: bytes) -> ASGIApp:
    """Build the MLflow routes, authorised by the token of a run; uploaded files are stored in the operator's home."""
    artifacts = LocalArtifacts(EngineHome(home))
    artifacts.forget_halves()
    models = TrackedModelUseCases(TrackingUseCases(application.loop), artifacts, application.models)

    def is_there(speaker: TokenCaller) -> bool:
        return bool(speaker.run) and application.store.get_job(JobKey(speaker.namespace, speaker.run)) is not None

    return make_mlflow(models, secret, is_there)
