"""A dataset version: numbered content that never changes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class DatasetFile:
    """One file of a version."""

    path: str
    size: int
    sha256: str
    """Empty for a file that was not read: of a reference to an object store."""


@dataclass(frozen=True, slots=True)
class DatasetVersion:
    """One version of a dataset."""

    name: str
    version: int
    digest: str
    """Of its manifest: names the content."""
    files: int
    size: int
    created: float
    is_file: bool = False
    """Whether it is one file, and not a folder."""
    reference: str = ""
    """For content that was not copied: the path or URI where it lies. The manifest says what it was when it was added."""
    run: str = ""
    """The run that made it: `default/predict-mnist-1`; its record says from what."""
    services: tuple[str, ...] = ()
    """For requests that were sampled: the services that got them, `default/mnist`."""
    models: tuple[str, ...] = ()
    """And the model versions that answered, `mnist@3`."""

    def __str__(self) -> str:
        """`mnist@3`."""
        return f"{self.name}@{self.version}"
