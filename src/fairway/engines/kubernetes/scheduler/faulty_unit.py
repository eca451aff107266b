"""Names the objects for which the scheduler fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

NAMESPACE, CLASS, DRIVER, VOLUME, CLAIM = "namespace", "class", "driver", "volume", "claim"
NODE, GPU_NODE, QUEUE, POD = "node", "gpunode", "queue", "pod"
KINDS = (NAMESPACE, CLASS, DRIVER, VOLUME, CLAIM, NODE, GPU_NODE, QUEUE, POD)
"""Every kind of object that the scheduler follows, in the order in which a new core receives them."""
GANG = "gang"
"""The kind of a gang, the pods that start together: a failed decision concerns all of them."""


@dataclass(frozen=True, slots=True, order=True)
class FaultUnit:
    """What is excluded from scheduling as a whole: an object, or a gang."""

    kind: str
    name: str
    """The key of the object (`NAMESPACE/NAME`, or `NAME`), or of the gang."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


class FaultyObjectsError(Exception):
    """Collects the objects for which some work failed, while the work for the others goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.causes: dict[FaultUnit, Exception] = {}

    @contextmanager
    def noting(self, kind: str, name: object) -> Iterator[None]:
        """Run work for one object; record an exception instead of raising it."""
        try:
            yield
        except Exception as problem:  # noqa: BLE001 - the failure concerns this object only.
            self.causes[FaultUnit(kind, str(name))] = problem

    def check(self) -> None:
        """Raise this error when a failure was recorded."""
        if self.causes:
            raise self

    def __str__(self) -> str:
        return "; ".join(f"{unit}: {problem!r}" for unit, problem in self.causes.items())
