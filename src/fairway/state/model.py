"""A model: numbered versions of what a job left behind, with where each came from."""

from __future__ import annotations

from dataclasses import dataclass, field

IN_REPLICA = "onnx"
"""The format that a replica runs itself; all others are loaded in a worker, under the interpreter of the service."""
LATEST = "latest"
"""In the place of a version or an alias: the newest version."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output of a model."""

    name: str
    datatype: str
    """The word of the Open Inference Protocol: `FP32`, `INT64`, `BYTES` ..."""
    shape: tuple[int, ...] = ()
    """-1 is a dimension of any length; the first one is the batch."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a model takes and gives."""

    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where a version came from. What is not known is empty."""

    run: str = ""
    """`default/mnist-7`."""
    code: str = ""
    """Digest of the code."""
    data: dict[str, str] = field(default_factory=dict)
    """Inputs by name: the dataset version or the reference that the run named."""
    environment: dict[str, str] = field(default_factory=dict)
    """Interpreter, requirements, image."""
    parameters: dict[str, str] = field(default_factory=dict)
    source: str = ""
    """For an import: the path or URI that it was read from."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is said of a version besides its content, when it is registered."""

    metrics: dict[str, float] = field(default_factory=dict)
    """The last values of its run, or what was given by hand."""
    lineage: Lineage = Lineage()
    tags: dict[str, str] = field(default_factory=dict)
    format: str = ""
    """The format that the content must have; empty: found from its files."""
    allow_pickle: bool = False
    """Whether files may be kept that run code when they are loaded."""
    made_here: bool = False
    """Whether the files lie where the run of the lineage left them, so that programs and SavedModels need no other consent."""
    title: str = ""
    """What MLflow clients call the model; empty: by its name."""
    best: dict[str, float] = field(default_factory=dict)
    """The best values of its run, of metrics whose direction is known."""
    anew: bool = False
    """Whether it becomes a version of its own, also where the newest one has the same content and facts."""


@dataclass(frozen=True, slots=True, order=True)
class ModelFile:
    """One file of a version."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """One version. Nothing of it but aliases and tags ever changes."""

    name: str
    version: int
    digest: str
    """Names the manifest, and with it the content."""
    format: str
    """A name of the table in `registry/formats`: `onnx`, `skops` ..."""
    files: int
    size: int
    created: float
    signature: Signature = Signature()
    metrics: dict[str, float] = field(default_factory=dict)
    lineage: Lineage = Lineage()
    tags: dict[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    title: str = ""
    """What MLflow clients call the model, where that is no name of the registry: `ResNet50`."""
    best: dict[str, float] = field(default_factory=dict)
    """The best values of the run that made it, of metrics whose direction is known; `metrics` has the last ones."""

    def __str__(self) -> str:
        """`mnist@3`: how it is named everywhere."""
        return f"{self.name}@{self.version}"
