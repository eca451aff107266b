"""Make every Python process of a task write complete lines, then load the user's own `sitecustomize`.

Fairway sets `PYTHONUNBUFFERED`, so that output appears immediately. Unbuffered, `print` writes a line and its end in two calls,
and the lines of processes that share a stream are mixed up. Line buffering is as prompt and writes a line in one call.

Python imports this module by itself, in every process of a task. It must be fast, so `importlib` itself is not loaded. Standard
library only, Python 3.9 and newer.
"""

import _frozen_importlib
import _frozen_importlib_external
import os
import sys

LINES = "FAIRWAY_LINES"
"""The same as in `fairway.runtime.task_contract`, which is not available where this file is used on its own."""
_WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")


def is_ours() -> bool:
    """Return whether output is unbuffered because of Fairway, not because of the user's variable or `python -u`."""
    if not os.environ.get(LINES):
        return False
    arguments = iter(getattr(sys, "orig_argv", [])[1:])
    for argument in arguments:
        if not argument.startswith("-") or argument[:2] in ("-c", "-m") or argument in ("-", "--"):
            break
        if not argument.startswith("--") and argument[:2] not in _WITH_VALUE and "u" in argument:
            return False
        if argument in _WITH_VALUE:
            next(arguments, None)
    return True


def buffer_lines() -> None:
    """Make the standard streams write complete lines."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(line_buffering=True, write_through=False)


def load_next() -> None:
    """Load the `sitecustomize` that Python would have found without this one. Raises `ImportError` if there is none."""
    own_folder = os.path.dirname(os.path.abspath(__file__))
    path = [folder for folder in sys.path if os.path.abspath(folder) != own_folder]
    spec = _frozen_importlib_external.PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        raise ImportError("no sitecustomize of the user", name="sitecustomize")
    module = _frozen_importlib.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    if is_ours():
        buffer_lines()
    load_next()
