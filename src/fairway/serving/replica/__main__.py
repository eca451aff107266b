"""`python -m fairway.serving.replica`. How fast this is decides how fast a service comes up from zero."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import sys
import types


def lean_uvicorn() -> None:
    """Make `uvicorn` importable without its command line, which is half of what it costs to load."""
    found = importlib.util.find_spec("uvicorn")
    if found is None or found.submodule_search_locations is None:
        return
    package = sys.modules["uvicorn"] = types.ModuleType("uvicorn")
    package.__path__ = found.submodule_search_locations
    package.__spec__ = found
    vars(package)["Config"] = importlib.import_module("uvicorn.config").Config  # some of its parts ask the package for it


if __name__ == "__main__":
    gc.disable()  # nothing that is loaded becomes garbage
    lean_uvicorn()
    from fairway.serving.replica.start import main

    sys.exit(main())
