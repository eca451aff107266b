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


def lean_msgspec() -> None:
    """Load msgspec without `typing_extensions`, which it asks for to know its types too; it costs more than all of ours."""
    if "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # how Python says that there is no such module
    try:
        importlib.import_module("msgspec")
    finally:
        del sys.modules["typing_extensions"]


if __name__ == "__main__":
    gc.disable()  # nothing that is loaded becomes garbage
    lean_msgspec()
    lean_uvicorn()
    from fairway.serving.replica.start import main

    sys.exit(main())
