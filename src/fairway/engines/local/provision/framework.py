"""Checks whether the interpreter of a replica's worker has the framework that the worker needs."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence

from fairway.registry.formats.format_table import TABLE
from fairway.registry.formats.model_format import RequiredPackage

_MODULE = "fairway.serving.replica"
_SECONDS = 20
_LOOK = """
import importlib.util, json, sys
from importlib import metadata
found = {}
others = metadata.packages_distributions() if hasattr(metadata, "packages_distributions") else {}
for module, name in json.loads(sys.argv[1]):
    if importlib.util.find_spec(module) is not None:
        for each in (name, *others.get(module, ())):
            try:
                found[module] = metadata.version(each)
                break
            except metadata.PackageNotFoundError:
                found[module] = ""
print(json.dumps(found))
"""
"""Finds modules without importing them: no package code runs except what the interpreter itself starts with."""


def missing_packages(command: Sequence[str], search: str) -> list[str]:
    """Return messages about packages that a replica's interpreter lacks for its model format, with the fix.

    Empty for other commands.
    """
    words = list(command)
    if _MODULE not in words or "--format" not in words or "--python" not in words:
        return []
    record = TABLE.get(words[words.index("--format") + 1])
    python = words[words.index("--python") + 1]
    path = shutil.which(python, path=search) or (shutil.which("python3", path=search) if python == "python" else None)
    if record is None or not record.packages or path is None:
        return []
    installed = _installed(path, [item for group in record.packages for item in group])
    if installed is None:
        return []
    missing = [group for group in record.packages if not any(item.module in installed for item in group)]
    messages = []
    if missing:
        needed = ", ".join(" or ".join(map(str, group)) for group in missing)
        install = " ".join(f"'{group[0]}'" for group in missing)
        messages.append(f"the format {record.name} needs {needed}, and {path} has none; fix: {path} -m pip install {install}")
    messages += [
        f"the format {record.name} needs {item}, and {path} has {installed[item.module]}; fix: {path} -m pip install '{item}'"
        for group in record.packages
        for item in group
        if installed.get(item.module) and _is_older(installed[item.module], item.least)
    ]
    return messages


def _installed(path: str, packages: Sequence[RequiredPackage]) -> dict[str, str] | None:
    """Return the versions of the installed packages by module; None when the interpreter cannot be run."""
    query = json.dumps([(package.module, package.name) for package in packages])
    try:
        completed = subprocess.run(
            [path, "-I", "-c", _LOOK, query], stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=True
        )
        versions: dict[str, str] = json.loads(completed.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return versions


def _is_older(version: str, least: str) -> bool:
    return bool(least) and _numbers(version) < _numbers(least)


def _numbers(version: str) -> list[int]:
    return [int(part) if part.isdigit() else 0 for part in version.split(".")[:3]]
