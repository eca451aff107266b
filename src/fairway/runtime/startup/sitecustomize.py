"""Whole lines from every Python process of a task, then the user's own `sitecustomize`.

Fairway sets `PYTHONUNBUFFERED`, so that output is seen at once. Unbuffered, `print` writes a line and its end in two calls, and
the lines of processes that share a stream are torn. Line buffering is as prompt and writes a line in one call.

Python imports this by itself, in every process of a task: it must be quick, so `importlib` itself is not loaded. Standard library
only, Python 3.9 and newer.
"""

import _frozen_importlib
import _frozen_importlib_external
import os
import sys

LINES = "FAIRWAY_LINES"
"""As `fairway.runtime.contract` has it; this file is also alone."""
_WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")


def is_ours() -> bool:
    """Whether output is unbuffered because of Fairway: not by the user's variable, and not by `python -u`."""
    if not os.environ.get(LINES):
        return False
    words = iter(getattr(sys, "orig_argv", [])[1:])
    for word in words:
        if not word.startswith("-") or word[:2] in ("-c", "-m") or word in ("-", "--"):
            break
        if not word.startswith("--") and word[:2] not in _WITH_VALUE and "u" in word:
            return False
        if word in _WITH_VALUE:
            next(words, None)
    return True


def buffer_lines() -> None:
    """Let the standard streams write whole lines."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(line_buffering=True, write_through=False)


def load_next() -> None:
    """The `sitecustomize` that Python would have found without this one. Raises `ImportError` when there is none."""
    own = os.path.dirname(os.path.abspath(__file__))
    path = [folder for folder in sys.path if os.path.abspath(folder) != own]
    found = _frozen_importlib_external.PathFinder.find_spec("sitecustomize", path)
    if found is None or found.loader is None:
        raise ImportError("no sitecustomize of the user", name="sitecustomize")
    module = _frozen_importlib.module_from_spec(found)
    sys.modules["sitecustomize"] = module
    found.loader.exec_module(module)


if __name__ == "sitecustomize":
    if is_ours():
        buffer_lines()
    load_next()
