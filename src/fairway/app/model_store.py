"""What the application needs of a registry of models, as a role. The suite is `fairway.testing.model_conformance`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from fairway.app.sent import Sent
from fairway.app.verification import Course
from fairway.state.content import Verified
from fairway.state.model import ModelFacts, ModelFile, ModelVersion


class RegistryNames(Protocol):
    """What names mean. `mnist` is the absolute name of a model of the namespace `default`, `team-a/mnist` of one of `team-a`.

    One machine has the namespace `default` alone. All other methods of a registry take and give absolute names.
    """

    def own(self, reference: str, namespace: str) -> str:
        """What a bare name means in a namespace, and in no other; `UsageError` for a name with a namespace in it."""
        ...

    def meant(self, reference: str, namespace: str) -> str:
        """What a name in an object of a namespace means; `team-b/mnist` is one of another namespace. Rights are not looked at."""
        ...

    def relative(self, reference: str, namespace: str) -> str:
        """The shortest name that means an absolute one in an object of a namespace."""
        ...


class ModelStore(RegistryNames, Protocol):
    """Keeps versions of models. Promises:

    1. A version is whole as soon as it has a number, whatever crashed or filled up on the way; a refusal keeps nothing.
    2. Numbers rise by one and are never used twice, also after a delete; several may register at once.
    3. Of a version nothing ever changes but aliases and tags. An alias means one version, and moves in one step.
    4. Content and facts of the newest version, registered again, give that version.
    5. No content is loaded or run. What would run code when it is loaded is refused, unless that was asked for.
    6. What was expected stays so until it is settled, whatever crashes.
    7. Content that is not what its digest says is not given out: `DamagedError`. Registering the good files again repairs it.
    """

    def register(self, name: str, path: str | Sent, facts: ModelFacts, now: float) -> ModelVersion:
        """Keep what lies at a path or a URI, or what was sent, as the next version."""
        ...

    def examine(self, path: str, facts: ModelFacts) -> str:
        """The format that a registration would find, keeping nothing; raises what it would."""
        ...

    def get(self, reference: str) -> ModelVersion:
        """The version that `mnist@3`, `mnist@champion`, `mnist@latest` or `mnist` means."""
        ...

    def list(self, name: str = "") -> list[ModelVersion]:
        """Every version of a model, or of all models, by name and number."""
        ...

    def files(self, version: ModelVersion) -> tuple[ModelFile, ...]:
        """The files of a version, in order of path."""
        ...

    def promote(self, version: ModelVersion, alias: str) -> int | None:
        """Let the alias mean this version; the number of the one that it meant before."""
        ...

    def demote(self, name: str, alias: str) -> int:
        """Take an alias away; the number of the version that it meant."""
        ...

    def tag(self, version: ModelVersion, tags: Mapping[str, str | None]) -> ModelVersion:
        """Put tags on a version; None takes one off."""
        ...

    def delete(self, version: ModelVersion) -> None:
        """Let a version be gone; `ConflictError` while an alias means it."""
        ...

    def rename(self, name: str, new: str, title: str) -> None:
        """Move all versions of a model to a name that has none; `title` is what MLflow clients call it."""
        ...

    def freeable(self) -> bool:
        """Whether versions were deleted whose content is still there."""
        ...

    def free(self, others: Iterable[str]) -> int | None:
        """Remove content that only deleted versions named; bytes, or None while somebody writes. `others` are needed besides."""
        ...

    def pull(self, version: ModelVersion, target: str) -> None:
        """Copy the version's files into a folder that is not there yet, or empty."""
        ...

    def folder(self, version: ModelVersion) -> Path:
        """A folder with the version's files, read-only, to serve from."""
        ...

    def verify(self, versions: Sequence[ModelVersion], course: Course) -> Verified:
        """Read all content of versions and compare it with its digests; `course` says how far it is."""
        ...

    def of_run(self, name: str, run: str) -> ModelVersion | None:
        """The version of a model that a run left behind, if there is one."""
        ...

    def expect(self, run: str) -> None:
        """Remember that a run may leave a model behind."""
        ...

    def expected(self) -> Sequence[str]:
        """The runs of which something is expected still."""
        ...

    def settle(self, run: str) -> None:
        """Nothing is expected of the run any more."""
        ...
