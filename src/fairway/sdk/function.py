"""A plain Python function as a job: packed here, called by `fairway.runtime.call` in every worker, its results read here.

The function travels as a pickle that the caller made and only the caller's own tasks read; the result is
one that those tasks made. Nothing of it is ever read from anybody else.
"""

from __future__ import annotations

import base64
import os
import pickle  # noqa: TID251 - a function can travel no other way, and both ends are the caller's
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairway.errors import FairwayError, NotFoundError
from fairway.runtime import call
from fairway.sdk import document
from fairway.sdk.wishes import Wishes
from fairway.state.phase import JobPhase
from fairway.units import names
from fairway.views.job import JobView


def submit_body(
    function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object], wishes: Wishes, namespace: str
) -> dict[str, Any]:
    """The body of a submit that calls a function."""
    import cloudpickle  # type: ignore[import-untyped]

    packed = cloudpickle.dumps({"function": function, "args": args, "kwargs": kwargs})
    payload = pickle.dumps({"path": sys.path, "call": packed})
    named: Wishes = {"name": names.suggest_name(getattr(function, "__name__", "function")), **wishes}
    command = [sys.executable, "-m", "fairway.runtime.call", call.PAYLOAD]
    return {
        "document": document.make_document(command, named, namespace=namespace, in_place=True),
        "origin": document.make_run_origin(os.getcwd(), interpreter=sys.executable),
        "environment": document.read_environment(),
        "files": {call.PAYLOAD: base64.b64encode(payload).decode()},
    }


def read_results(job: JobView) -> tuple[Any, ...]:
    """What each rank returned. Raises `FairwayError` when the run did not succeed, with the function's own error as its cause."""
    found = sorted(
        Path(job.folder, "shared").glob(call.RESULT.format(rank="*")), key=lambda path: int(path.stem.rpartition("-")[2])
    )
    results = [pickle.loads(path.read_bytes()) for path in found]
    if job.phase is not JobPhase.SUCCEEDED:
        error = next((result["error"] for result in results if result["error"] is not None), None)
        why = job.outcome.message if job.outcome else job.phase.value
        message = f"{job.name} did not succeed: {why}"
        raise FairwayError(message, fix=f"fairway logs {job.name}") from error
    if not results:
        message = f"{job.name} left no result"
        raise NotFoundError(message, fix="only a function submitted by `Client.submit` has one")
    return tuple(result["value"] for result in results)
