"""Records that a training script creates through an MLflow client: experiments, runs, and the models that they logged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from fairway.state.metric import MetricSummary


@dataclass(frozen=True, slots=True)
class TrackingRecord:
    """One record. `name` identifies it for clients; it is unique for its kind and namespace."""

    kind: ClassVar[str] = ""
    namespace: str
    name: str

    @property
    def group(self) -> str:
        """The record of another kind to which it belongs; empty if there is none."""
        return ""

    @property
    def owner(self) -> str:
        """The Fairway run with which it is deleted (`default/mnist-7`); empty: none."""
        return ""


@dataclass(frozen=True, slots=True)
class Experiment(TrackingRecord):
    """A group of runs. Every series of jobs is an experiment without a record."""

    kind: ClassVar[str] = "experiment"
    title: str = ""
    """Display name: any text."""
    created: float = 0.0
    tags: dict[str, str] = field(default_factory=dict)
    maker: str = ""
    """The Fairway run whose token created it: `mnist-7`. Empty: the owner of the home. The experiment outlives that run."""
    updated: float = 0.0
    """Time of the last change of its name, tags or state; 0: never changed since it was created."""
    deleted: bool = False
    """Whether it is hidden, with its runs. No data is removed."""
    location: str = ""
    """Where clients store the files of its runs, if they specified their own place: `s3://bucket/path`."""


@dataclass(frozen=True, slots=True)
class TrackedRun(TrackingRecord):
    """Client data of a run. The run of a job has the job's name; other runs have a generated one."""

    kind: ClassVar[str] = "run"
    experiment: str = ""
    job: str = ""
    """The Fairway run that it is, or within which it was created: `mnist-7`. Empty: it was created outside of any."""
    title: str = ""
    status: str = "RUNNING"
    """MLflow status. For a job's own run, the phase of the job counts instead."""
    created: float = 0.0
    ended: float | None = None
    attempt: int = -1
    """For a job's own run: the attempt that used it last; -1: none yet."""
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)
    """Models that it logged, each with its step."""
    inputs: tuple[str, ...] = ()
    """Datasets that it read, as described by the client (JSON)."""
    versions: tuple[str, ...] = ()
    """Model versions registered from it: `mnist@3`."""
    deleted: bool = False
    summaries: dict[str, MetricSummary] = field(default_factory=dict)
    """Its metrics, unless it is a job's own run. Runs of an earlier version have none."""
    model_inputs: tuple[str, ...] = ()
    """Logged models that it read."""
    location: str = ""
    """Location of its files, if its experiment specifies a place outside of Fairway."""

    @property
    def of_job(self) -> bool:
        """Whether it is a job's own run."""
        return bool(self.job) and self.job == self.name

    @property
    def group(self) -> str:
        """Its experiment."""
        return self.experiment

    @property
    def owner(self) -> str:
        """Its job."""
        return f"{self.namespace}/{self.job}" if self.job else ""


@dataclass(frozen=True, slots=True)
class LoggedModel(TrackingRecord):
    """A model that a run logged, with its own files. Registering it creates a model version."""

    kind: ClassVar[str] = "model"
    title: str = ""
    experiment: str = ""
    run: str = ""
    """The run that logged it."""
    job: str = ""
    status: str = "LOGGED_MODEL_PENDING"
    model_type: str = ""
    created: float = 0.0
    updated: float = 0.0
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, str] = field(default_factory=dict)
    """The last value of each of its metrics and datasets, as sent by the client (JSON)."""
    deleted: bool = False
    location: str = ""
    """Location of its files, if its experiment specifies a place outside of Fairway."""

    @property
    def group(self) -> str:
        """Its experiment."""
        return self.experiment

    @property
    def owner(self) -> str:
        """Its job."""
        return f"{self.namespace}/{self.job}" if self.job else ""


@dataclass(frozen=True, slots=True)
class RegisteredModelName(TrackingRecord):
    """A registered model name of a client: any text. It may exist before there is a version."""

    kind: ClassVar[str] = "registered"
    model: str = ""
    """Name in the registry."""
    created: float = 0.0
    description: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    maker: str = ""
    """The Fairway run whose token created the name: `mnist-7`. Empty: the owner of the home, or an earlier version of Fairway."""
    updated: float = 0.0
    """Time of the last change of the model or of a version's stage; 0: never changed since it was created."""
    stages: dict[str, str] = field(default_factory=dict)
    """The stage of each version that has one, by number: `{"3": "Production"}`."""
    touched: dict[str, float] = field(default_factory=dict)
    """Time of the last change of each version, by number; unchanged versions are missing."""
    deleted: bool = False
    """Whether the name is free again because the model was deleted or renamed."""


KINDS: tuple[type[TrackingRecord], ...] = (Experiment, TrackedRun, LoggedModel, RegisteredModelName)
