"""A model: numbered versions of what a job produced, with the origin of each."""

from __future__ import annotations

from dataclasses import dataclass, field

IN_REPLICA = "onnx"
"""The format that a replica runs itself. Other formats are loaded in a worker process with the interpreter of the service."""
LATEST = "latest"
"""Used in place of a version or an alias: the newest version."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output of a model."""

    name: str
    datatype: str
    """Datatype of the Open Inference Protocol: `FP32`, `INT64`, `BYTES` ..."""
    shape: tuple[int, ...] = ()
    """-1 is a dimension of any length; the first dimension is the batch."""


@dataclass(frozen=True, slots=True)
class ModelSignature:
    """Inputs and outputs of a model."""

    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelLineage:
    """Origin of a version. Unknown values are empty."""

    run: str = ""
    """`default/mnist-7`."""
    code: str = ""
    """Digest of the code."""
    data: dict[str, str] = field(default_factory=dict)
    """Inputs by name: the dataset version or the reference that the run used."""
    environment: dict[str, str] = field(default_factory=dict)
    """Interpreter, requirements, image."""
    parameters: dict[str, str] = field(default_factory=dict)
    source: str = ""
    """For an import: the path or URI of the source."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Facts about a version besides its content, given when it is registered."""

    metrics: dict[str, float] = field(default_factory=dict)
    """Last values of its run, or values given by the user."""
    lineage: ModelLineage = ModelLineage()
    tags: dict[str, str] = field(default_factory=dict)
    format: str = ""
    """Required format of the content; empty: detected from its files."""
    allow_pickle: bool = False
    """Whether files may be stored that run code when they are loaded."""
    made_here: bool = False
    """Whether the files are still in the output folder of the run in the lineage, so that programs and SavedModels need no
    further consent."""
    title: str = ""
    """Name of the model for MLflow clients; empty: its registry name."""
    best: dict[str, float] = field(default_factory=dict)
    """Best values of its run, for metrics whose direction is known."""
    anew: bool = False
    """Whether to create a new version even if the newest one has the same content and facts."""


@dataclass(frozen=True, slots=True, order=True)
class ModelFile:
    """One file of a version."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """One version. Only its aliases and tags ever change."""

    name: str
    version: int
    digest: str
    """Digest of the manifest, which identifies the content."""
    format: str
    """A format of the table in `registry/formats`: `onnx`, `skops` ..."""
    files: int
    size: int
    created: float
    signature: ModelSignature = ModelSignature()
    metrics: dict[str, float] = field(default_factory=dict)
    lineage: ModelLineage = ModelLineage()
    tags: dict[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    title: str = ""
    """Name of the model for MLflow clients, if that is not a valid registry name: `ResNet50`."""
    best: dict[str, float] = field(default_factory=dict)
    """Best values of the run that created it, for metrics whose direction is known; `metrics` has the last values."""

    def __str__(self) -> str:
        """`mnist@3`: its name everywhere."""
        return f"{self.name}@{self.version}"
