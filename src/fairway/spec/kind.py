"""The kinds of documents."""

from __future__ import annotations

from fairway.spec.job import TrainingJob
from fairway.spec.queue import JobQueue
from fairway.spec.service import ModelService

Document = TrainingJob | JobQueue | ModelService
KINDS: dict[str, type[TrainingJob] | type[JobQueue] | type[ModelService]] = {
    "TrainingJob": TrainingJob,
    "JobQueue": JobQueue,
    "ModelService": ModelService,
}
"""The documents that can be read, by kind."""
