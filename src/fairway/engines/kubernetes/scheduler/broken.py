"""Which object the scheduler fails for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

NAMESPACE, CLASS, DRIVER, VOLUME, CLAIM = "namespace", "class", "driver", "volume", "claim"
NODE, GPU_NODE, QUEUE, POD = "node", "gpunode", "queue", "pod"
KINDS = (NAMESPACE, CLASS, DRIVER, VOLUME, CLAIM, NODE, GPU_NODE, QUEUE, POD)
"""Every kind of object that the scheduler hears of, in the order in which a new core hears of them."""
GANG = "gang"
"""The pods that start together: deciding fails for all of them."""


@dataclass(frozen=True, slots=True, order=True)
class Unit:
    """What is left out as a whole: an object, or a gang."""

    kind: str
    name: str
    """The key of the object (`NAMESPACE/NAME`, or `NAME`), or of the gang."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


class BrokenError(Exception):
    """Collects which objects some work failed for; the rest of the work is done."""

    def __init__(self) -> None:
        super().__init__()
        self.causes: dict[Unit, Exception] = {}

    @contextmanager
    def noting(self, kind: str, name: object) -> Iterator[None]:
        """Work for one object; an exception is noted."""
        try:
            yield
        except Exception as problem:  # noqa: BLE001 - the failure is the object's.
            self.causes[Unit(kind, str(name))] = problem

    def check(self) -> None:
        """Raise this when anything failed."""
        if self.causes:
            raise self

    def __str__(self) -> str:
        return "; ".join(f"{unit}: {problem!r}" for unit, problem in self.causes.items())
