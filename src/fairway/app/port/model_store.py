"""The model registry that the application needs, as a port. Its test suite is `fairway.testing.conformance.model_conformance`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from fairway.app.upload import UploadedContent
from fairway.app.verification_progress import VerificationProgress
from fairway.state.content_check import ContentVerification
from fairway.state.model import ModelFacts, ModelFile, ModelVersion


class NameResolver(Protocol):
    """Resolves names. `mnist` is the absolute name of a model of the namespace `default`, `team-a/mnist` of one of `team-a`.

    A single machine has only the namespace `default`. All other methods of a registry take and return absolute names.
    """

    def own(self, reference: str, namespace: str) -> str:
        """Return the absolute name of a bare name in a namespace; `UsageError` for a name that contains a namespace."""
        ...

    def meant(self, reference: str, namespace: str) -> str:
        """Return the absolute name of a reference in an object of a namespace; `team-b/mnist` refers to another namespace.

        Permissions are not checked.
        """
        ...

    def relative(self, reference: str, namespace: str) -> str:
        """Return the shortest reference to an absolute name in an object of a namespace."""
        ...


class ModelStore(NameResolver, Protocol):
    """Stores versions of models. Guarantees:

    1. A version is complete as soon as it has a number, even after a crash or a full disk; a refusal stores nothing.
    2. Numbers increase by one and are never reused, even after a delete; concurrent registrations are safe.
    3. A version is immutable except for aliases and tags. An alias refers to one version, and moves atomically.
    4. Registering the content and facts of the newest version again returns that version.
    5. No content is loaded or executed. Content that would execute code when loaded is refused, unless explicitly allowed.
    6. An expected output stays expected until it is settled, even after a crash.
    7. Content that does not match its digest is not returned: `DamagedError`. Registering the good files again repairs it.
    """

    def register(self, name: str, path: str | UploadedContent, facts: ModelFacts, now: float) -> ModelVersion:
        """Store the content of a path or URI, or uploaded content, as the next version."""
        ...

    def examine(self, path: str, facts: ModelFacts) -> str:
        """Return the format that a registration would detect, storing nothing; raises the errors of a registration."""
        ...

    def get(self, reference: str) -> ModelVersion:
        """Return the version that `mnist@3`, `mnist@champion`, `mnist@latest` or `mnist` refers to."""
        ...

    def list(self, name: str = "") -> list[ModelVersion]:
        """List every version of a model, or of all models, by name and number."""
        ...

    def files(self, version: ModelVersion) -> tuple[ModelFile, ...]:
        """Return the files of a version, in order of path."""
        ...

    def promote(self, version: ModelVersion, alias: str) -> int | None:
        """Point the alias to this version; return the number of the version that it referred to before."""
        ...

    def demote(self, name: str, alias: str) -> int:
        """Remove an alias; return the number of the version that it referred to."""
        ...

    def tag(self, version: ModelVersion, tags: Mapping[str, str | None]) -> ModelVersion:
        """Set tags on a version; None removes one."""
        ...

    def delete(self, version: ModelVersion) -> None:
        """Delete a version; `ConflictError` while an alias refers to it."""
        ...

    def rename(self, name: str, new: str, title: str) -> None:
        """Move all versions of a model to an unused name; `title` is its name for MLflow clients."""
        ...

    def freeable(self) -> bool:
        """Return whether the content of deleted versions still occupies space."""
        ...

    def free(self, others: Iterable[str]) -> int | None:
        """Remove content that only deleted versions referenced, except `others`.

        Returns the number of freed bytes, or None while another process writes.
        """
        ...

    def pull(self, version: ModelVersion, target: str) -> None:
        """Copy the version's files into a folder that is empty or does not exist."""
        ...

    def folder(self, version: ModelVersion) -> Path:
        """Return a read-only folder with the version's files, to serve from."""
        ...

    def verify(self, versions: Sequence[ModelVersion], course: VerificationProgress) -> ContentVerification:
        """Read all content of versions and compare it with its digests; `course` tracks the progress."""
        ...

    def of_run(self, name: str, run: str) -> ModelVersion | None:
        """Return the version of a model that was created from the output of a run, if there is one."""
        ...

    def expect(self, run: str) -> None:
        """Record that a run may leave a model as its output."""
        ...

    def expected(self) -> Sequence[str]:
        """Return the runs whose outputs are still expected."""
        ...

    def settle(self, run: str) -> None:
        """Stop expecting an output of the run."""
        ...
