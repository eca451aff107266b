"""What a training script tells of itself through an MLflow client: experiments, runs, and the models that they logged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from fairway.state.metric import Summary


@dataclass(frozen=True, slots=True)
class Tracked:
    """One record. `name` is what a client knows it by, alone of its kind in its namespace."""

    kind: ClassVar[str] = ""
    namespace: str
    name: str

    @property
    def group(self) -> str:
        """The record that it belongs to, of another kind; empty when it stands alone."""
        return ""

    @property
    def owner(self) -> str:
        """The Fairway run that it is forgotten with (`default/mnist-7`); empty: none."""
        return ""


@dataclass(frozen=True, slots=True)
class Experiment(Tracked):
    """A group of runs. Every series of jobs is one without a record."""

    kind: ClassVar[str] = "experiment"
    title: str = ""
    """What people call it: any text."""
    created: float = 0.0
    tags: dict[str, str] = field(default_factory=dict)
    maker: str = ""
    """The Fairway run whose token made it: `mnist-7`. Empty: the owner of the home. It outlives that run."""
    updated: float = 0.0
    """When its name, its tags or its state changed last; 0: never since it was made."""
    deleted: bool = False
    """Whether it is hidden, with its runs. Nothing is removed."""
    location: str = ""
    """Where clients put the files of its runs, when they named a place of their own: `s3://bucket/path`."""


@dataclass(frozen=True, slots=True)
class TrackedRun(Tracked):
    """What was said of a run. A run of a job bears the job's name; any other has a made-up one."""

    kind: ClassVar[str] = "run"
    experiment: str = ""
    job: str = ""
    """The run of ours that it is, or within which it was made: `mnist-7`. Empty: it was made outside of any."""
    title: str = ""
    status: str = "RUNNING"
    """The word of the protocol. Of a job's own run its phase counts instead."""
    created: float = 0.0
    ended: float | None = None
    attempt: int = -1
    """Of a job's own run: the attempt that took it up last; -1: none has yet."""
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)
    """Models that it logged, and at which step each."""
    inputs: tuple[str, ...] = ()
    """Datasets that it read, as the client described them (JSON)."""
    versions: tuple[str, ...] = ()
    """What was registered from it: `mnist@3`."""
    deleted: bool = False
    summaries: dict[str, Summary] = field(default_factory=dict)
    """Its metrics, where it is no job's own run. Runs of an earlier version have none."""
    model_inputs: tuple[str, ...] = ()
    """Logged models that it read."""
    location: str = ""
    """Where its files are, when its experiment names a place outside of Fairway."""

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
class LoggedModel(Tracked):
    """A model that a run logged, with files of its own. Registering it makes a version of it."""

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
    """The last value of each of its metrics and datasets, as the client sent it (JSON)."""
    deleted: bool = False
    location: str = ""
    """Where its files are, when its experiment names a place outside of Fairway."""

    @property
    def group(self) -> str:
        """Its experiment."""
        return self.experiment

    @property
    def owner(self) -> str:
        """Its job."""
        return f"{self.namespace}/{self.job}" if self.job else ""


@dataclass(frozen=True, slots=True)
class RegisteredName(Tracked):
    """A model's name as a client knows it: any text, also before there is a version."""

    kind: ClassVar[str] = "registered"
    model: str = ""
    """What the registry calls it."""
    created: float = 0.0
    description: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    maker: str = ""
    """The Fairway run whose token made the name: `mnist-7`. Empty: the owner of the home, or an earlier version of Fairway."""
    updated: float = 0.0
    """When the model or the stage of a version changed last; 0: not since it was made."""
    stages: dict[str, str] = field(default_factory=dict)
    """The stage of each version that has one, by number: `{"3": "Production"}`."""
    touched: dict[str, float] = field(default_factory=dict)
    """When each version was changed last, by number; versions that were not are missing."""
    deleted: bool = False
    """Whether the name is free again: the model was deleted, or has another name."""


KINDS: tuple[type[Tracked], ...] = (Experiment, TrackedRun, LoggedModel, RegisteredName)
