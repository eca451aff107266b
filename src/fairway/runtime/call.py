"""Call a function sent by `Client.submit`, in every worker: `python -m fairway.runtime.call PAYLOAD`.

Its result is stored with the run, in one file per rank. An exception is stored too, and ends the process with exit code 1.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from fairway.runtime import task_context

PAYLOAD = "call.pkl"
SENT = "sent"
"""The folder next to the shared one where the engine puts files that came with a submission."""
RESULT = "result-{rank}.pkl"


def main() -> int:
    """Load the function, call it, and store the result."""
    shared = task_context.shared_dir()
    if len(sys.argv) != 2 or shared is None:
        sys.stderr.write("usage, inside a task: python -m fairway.runtime.call PAYLOAD\n")
        return 2
    payload = _load(shared.parent / SENT / sys.argv[1])
    try:
        value = payload["function"](*payload["args"], **payload["kwargs"])
    except BaseException as error:
        _keep(shared, None, error)
        raise
    _keep(shared, value, None)
    return 0


def _load(path: Path) -> dict[str, Any]:
    """Load the function with its arguments. The caller's module search path is restored first, so that its modules are found."""
    import pickle  # noqa: PLC0415 - the caller's own function

    outer = pickle.loads(path.read_bytes())
    sys.path.extend(entry for entry in outer["path"] if entry not in sys.path)
    return pickle.loads(outer["call"])  # type: ignore[no-any-return]


def _keep(shared: Path, value: Any, error: BaseException | None) -> None:
    """Store the result atomically.

    An error that cannot be pickled is replaced by a message; a value that cannot be pickled is a failure.
    """
    import cloudpickle  # type: ignore[import-untyped]  # noqa: PLC0415 - only a function sent as a job needs it

    problem: TypeError | None = None
    try:
        data = cloudpickle.dumps({"value": value, "error": error})
    except Exception as cause:  # noqa: BLE001 - whatever a caller's class raises when it is pickled
        problem = TypeError(f"a {type(error or value).__name__} cannot be sent back ({cause}): {error or value!r}"[:1000])
        data = cloudpickle.dumps({"value": None, "error": problem})
    path = shared / RESULT.format(rank=task_context.rank())
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)
    if problem and error is None:
        raise problem


if __name__ == "__main__":
    sys.exit(main())
