"""What a caller may wish for a run, by name: the keywords of `Client.submit` and the flags of `fairway run`."""

from __future__ import annotations

from typing import TypedDict


class Wishes(TypedDict, total=False):
    """All optional; what is left out is up to the document, or to its defaults."""

    name: str
    """The series; runs are called NAME-1, NAME-2 and so on."""
    role: str
    """What `workers` and the resources are about; `worker` unless the document has another only role."""
    roles: dict[str, int]
    """How many tasks each role has, besides the one that `workers` is about: {"ps": 2}."""
    workers: int
    processes: int
    """Processes a worker."""
    gpus: str | float
    """GPUs a worker: 1, 0.25, "H100:8"."""
    cpus: str | float
    memory: str
    """Memory a worker: "2Gi"."""
    memory_limit: str
    """Memory that ends a worker that holds more: "4Gi"."""
    framework: str
    env: dict[str, str]
    python: str
    """An interpreter or a virtual environment."""
    requirements: str
    timeout: str
    retries: int
    """Failures that are forgiven."""
    stop_at_step: int
    stop_when: str
    metrics_pattern: str
    """A regular expression over log lines with named groups; a group called `step` is the step."""
    tensorboard_dir: str
    """A folder with event files."""
    data: dict[str, str]
    secrets: list[str]
    outputs: dict[str, str]
    log_limit: str
    """Output kept of each process: "64Mi"; "0" for all of it."""
    queue: str
    """The queue it waits in."""
    priority: int
    labels: dict[str, str]
