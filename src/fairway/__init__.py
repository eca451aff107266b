"""Fairway: train, register and serve models, on one machine or on a cluster.

Inside a task, training code calls:

    fairway.rank(), fairway.world_size(), fairway.peers()      this worker and the others
    fairway.report(step=100, loss=0.3)                         progress, charts, stop conditions
    fairway.checkpoint.save(step), .latest()                   state that survives a restart
    fairway.should_stop()                                      whether the task must end soon
    fairway.shards(n_items, size=1000)                         work split among the workers at run time
    fairway.export(model, example_inputs)                      a model that can be served

A program that submits work calls (available in a full install, not in the copy inside a task):

    fairway.Client().submit("job.yaml")                        also as AsyncClient

Outside of a task the same calls behave as for a single worker, so a program needs no second code path. Names are loaded on first
use: `import fairway` alone takes well under a millisecond. Runs on Python 3.9 and newer, because a copy of this file is put into
every task.
"""

import os
import sys

TYPE_CHECKING = False  # `typing` costs more to import than this whole file; type checkers know the name
if TYPE_CHECKING:
    from fairway.errors import FairwayError
    from fairway.runtime import checkpoint
    from fairway.runtime.metrics import report
    from fairway.runtime.model_export.exporter import export
    from fairway.runtime.shards import shards
    from fairway.runtime.stop import handle_sigterm, requeue, should_stop
    from fairway.runtime.task_context import (
        attempt,
        data,
        in_job,
        index,
        job,
        local_leader,
        local_rank,
        local_world_size,
        output,
        peers,
        rank,
        role,
        tensorboard_dir,
        world_size,
    )
    from fairway.sdk.client import AsyncClient, Client
    from fairway.version import __version__

__all__ = [
    "AsyncClient",
    "Client",
    "FairwayError",
    "__version__",
    "attempt",
    "checkpoint",
    "data",
    "export",
    "handle_sigterm",
    "in_job",
    "index",
    "job",
    "local_leader",
    "local_rank",
    "local_world_size",
    "output",
    "peers",
    "rank",
    "report",
    "requeue",
    "role",
    "shards",
    "should_stop",
    "tensorboard_dir",
    "world_size",
]

_HOMES = {
    "AsyncClient": ("fairway.sdk.client", "AsyncClient"),
    "Client": ("fairway.sdk.client", "Client"),
    "FairwayError": ("fairway.errors", "FairwayError"),
    "__version__": ("fairway.version", "__version__"),
    "checkpoint": ("fairway.runtime.checkpoint", ""),
    "export": ("fairway.runtime.model_export.exporter", "export"),
    "report": ("fairway.runtime.metrics", "report"),
    "shards": ("fairway.runtime.shards", "shards"),
    "handle_sigterm": ("fairway.runtime.stop", "handle_sigterm"),
    "requeue": ("fairway.runtime.stop", "requeue"),
    "should_stop": ("fairway.runtime.stop", "should_stop"),
}
"""The module of each public name; the others are in `fairway.runtime.task_context`. An empty name means the module itself."""


if not TYPE_CHECKING:  # a type checker would take every name as defined

    def __getattr__(name: str) -> object:
        """Load a public name on first access."""
        if name not in __all__:
            message = f"module 'fairway' has no attribute {name!r}"
            raise AttributeError(message)
        import importlib  # noqa: PLC0415  it would double the cost of `import fairway`

        home, inside = _HOMES.get(name, ("fairway.runtime.task_context", name))
        try:
            module = importlib.import_module(home)
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("fairway"):
                raise
            message = f"fairway.{name} is not part of the copy inside a task; install it there: pip install fairway"
            raise AttributeError(message) from None
        value = getattr(module, inside) if inside else module
        globals()[name] = value
        return value


def __dir__() -> "list[str]":
    return sorted(__all__)


def _other_installs(here: str) -> "list[str]":
    """Return the folders of a full install further down `sys.path`.

    The copy that engines put into a task contains only `fairway.runtime`. If the task's own environment has Fairway installed,
    the remaining packages (such as the SDK) must stay importable. `pkgutil.extend_path` would do the same at ten times the cost.
    """
    folders = []
    for entry in sys.path:
        folder = os.path.join(entry, "fairway")  # pathlib is not loaded yet
        if folder != here and os.path.isfile(os.path.join(folder, "__init__.py")):
            folders.append(folder)
    return folders


if not os.path.isdir(os.path.join(__path__[0], "sdk")):  # this is the copy inside a task
    __path__.extend(_other_installs(__path__[0]))
