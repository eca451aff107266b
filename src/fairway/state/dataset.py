"""A dataset version: numbered content that never changes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class DatasetFile:
    """One file of a version."""

    path: str
    size: int
    sha256: str
    """Empty for a file that was not read: part of a reference to an object store."""


@dataclass(frozen=True, slots=True)
class DatasetVersion:
    """One version of a dataset."""

    name: str
    version: int
    digest: str
    """Digest of the manifest; identifies the content."""
    files: int
    size: int
    created: float
    is_file: bool = False
    """Whether it is a single file, not a folder."""
    reference: str = ""
    """For content that was not copied: its path or URI. The manifest describes the content when it was added."""
    run: str = ""
    """The run that created it: `default/predict-mnist-1`; the record of the run names its inputs."""
    services: tuple[str, ...] = ()
    """For sampled requests: the services that received them, `default/mnist`."""
    models: tuple[str, ...] = ()
    """For sampled requests: the model versions that answered, `mnist@3`."""

    def __str__(self) -> str:
        """`mnist@3`."""
        return f"{self.name}@{self.version}"
