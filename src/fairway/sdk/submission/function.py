"""Python functions as jobs: pickled here, called by `fairway.runtime.call` in every worker, their results read here.

The function is sent as a pickle that only the caller's own tasks read, and the result is a pickle made by those
tasks. No pickle of another user is ever read.
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
from fairway.sdk.run_option import RunOptions
from fairway.sdk.submission import document
from fairway.state.phase import JobPhase
from fairway.units import names
from fairway.views.job import JobView


def submit_body(
    function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object], wishes: RunOptions, namespace: str
) -> dict[str, Any]:
    """Return the body of a submit that calls a function."""
    import cloudpickle  # type: ignore[import-untyped]

    packed = cloudpickle.dumps({"function": function, "args": args, "kwargs": kwargs})
    payload = pickle.dumps({"path": sys.path, "call": packed})
    named_wishes: RunOptions = {"name": names.suggest_name(getattr(function, "__name__", "function")), **wishes}
    command = [sys.executable, "-m", "fairway.runtime.call", call.PAYLOAD]
    return {
        "document": document.make_document(command, named_wishes, namespace=namespace, in_place=True),
        "origin": document.make_run_origin(os.getcwd(), interpreter=sys.executable),
        "environment": document.read_environment(),
        "files": {call.PAYLOAD: base64.b64encode(payload).decode()},
    }


def read_results(job: JobView) -> tuple[Any, ...]:
    """Return the value of each rank. Raises `FairwayError`, caused by the function's error, if the run did not succeed."""
    paths = sorted(
        Path(job.folder, "shared").glob(call.RESULT.format(rank="*")), key=lambda path: int(path.stem.rpartition("-")[2])
    )
    results = [pickle.loads(path.read_bytes()) for path in paths]
    if job.phase is not JobPhase.SUCCEEDED:
        error = next((result["error"] for result in results if result["error"] is not None), None)
        reason = job.outcome.message if job.outcome else job.phase.value
        message = f"{job.name} did not succeed: {reason}"
        raise FairwayError(message, fix=f"fairway logs {job.name}") from error
    if not results:
        message = f"{job.name} returned no result"
        raise NotFoundError(message, fix="only a function submitted by `Client.submit` has one")
    return tuple(result["value"] for result in results)
