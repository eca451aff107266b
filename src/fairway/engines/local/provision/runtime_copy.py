"""Provides a copy of `fairway.runtime` for tasks, so that a training environment needs no installation of Fairway."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from pathlib import Path

from fairway import version
from fairway.app.system import crash_point

_TOP = ("__init__.py", "version.py")
_PACKAGE = "runtime"
_HOOK = Path(_PACKAGE, "startup", "sitecustomize.py")


def provide_runtime(home: Path, source: Path | None = None) -> Path:
    """Return the folder for PYTHONPATH, created once for each version and content. Safe for concurrent calls."""
    source = source or Path(version.__file__).parent
    files = [source / name for name in _TOP] + sorted((source / _PACKAGE).glob("**/*.py"))
    digest = hashlib.sha256()
    for path in files:
        digest.update(str(path.relative_to(source)).encode() + b"\0" + path.read_bytes() + b"\0")
    target = home / "inject" / f"{version.VERSION}-{digest.hexdigest()[:12]}"
    if target.is_dir():
        return target
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}-{secrets.token_hex(4)}")
    try:
        for path in files:
            copy = aside / "fairway" / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
            if path == source / _HOOK:
                # Python imports it automatically from the top of a folder on PYTHONPATH.
                shutil.copyfile(path, aside / _HOOK.name)
        with crash_point.reach("registry.rename"):
            os.rename(aside, target)
    except OSError:
        # Another process was first, with the same content.
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return target
