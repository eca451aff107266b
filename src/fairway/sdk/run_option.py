"""The options of a run: the keywords of `Client.submit` and the flags of `fairway run`."""

from __future__ import annotations

from typing import TypedDict


class RunOptions(TypedDict, total=False):
    """Options of a run, all optional; the document or its defaults decide those that are not given."""

    name: str
    """The series; its runs are named NAME-1, NAME-2 and so on."""
    role: str
    """The role that `workers` and the resources apply to; default `worker`, or the only role of the document."""
    roles: dict[str, int]
    """Number of tasks of each further role: {"ps": 2}."""
    workers: int
    processes: int
    """Processes per worker."""
    gpus: str | float
    """GPUs per worker: 1, 0.25, "H100:8"."""
    cpus: str | float
    memory: str
    """Memory per worker: "2Gi"."""
    memory_limit: str
    """Memory limit per worker, which is killed above it: "4Gi"."""
    framework: str
    env: dict[str, str]
    python: str
    """An interpreter or a virtual environment."""
    requirements: str
    timeout: str
    retries: int
    """Number of failures after which the run is restarted."""
    stop_at_step: int
    stop_when: str
    metrics_pattern: str
    """A regular expression for log lines, with named groups; the group `step` is the step."""
    tensorboard_dir: str
    """A folder with event files."""
    data: dict[str, str]
    secrets: list[str]
    outputs: dict[str, str]
    log_limit: str
    """Output kept per process: "64Mi"; "0" for all of it."""
    queue: str
    """The queue that the run waits in."""
    priority: int
    labels: dict[str, str]
