"""The kinds of documents."""

from __future__ import annotations

from fairway.spec.job import TrainingJob
from fairway.spec.queue import JobQueue

Document = TrainingJob | JobQueue
KINDS: dict[str, type[TrainingJob] | type[JobQueue]] = {"TrainingJob": TrainingJob, "JobQueue": JobQueue}
"""The documents that can be read, by kind."""
