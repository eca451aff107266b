"""`python -m fairway.serving.replica`. Its startup time determines how fast a service scales up from zero."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import sys
import types


def lean_uvicorn() -> None:
    """Make `uvicorn` importable without its command line, which is half of its import time."""
    spec = importlib.util.find_spec("uvicorn")
    if spec is None or spec.submodule_search_locations is None:
        return
    package = sys.modules["uvicorn"] = types.ModuleType("uvicorn")
    package.__path__ = spec.submodule_search_locations
    package.__spec__ = spec
    vars(package)["Config"] = importlib.import_module("uvicorn.config").Config  # some of its modules import it from the package


def lean_msgspec() -> None:
    """Load msgspec without its optional import of `typing_extensions`, which takes longer than all of Fairway's modules."""
    if "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # marks the module as not importable
    try:
        importlib.import_module("msgspec")
    finally:
        del sys.modules["typing_extensions"]


if __name__ == "__main__":
    gc.disable()  # objects created while loading do not become garbage
    lean_msgspec()
    lean_uvicorn()
    from fairway.serving.replica.startup import main

    sys.exit(main())
