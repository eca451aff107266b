"""The framework that a replica's worker needs, looked for in the interpreter that will run it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence

from fairway.registry.formats.record import Package
from fairway.registry.formats.table import TABLE

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
"""Finds modules without loading them: the code of no package runs but what the interpreter itself starts with."""


def missing_packages(command: Sequence[str], search: str) -> list[str]:
    """What the interpreter of a replica lacks for the format of its model, with the fix. Empty for other commands."""
    words = list(command)
    if _MODULE not in words or "--format" not in words or "--python" not in words:
        return []
    record = TABLE.get(words[words.index("--format") + 1])
    python = words[words.index("--python") + 1]
    path = shutil.which(python, path=search) or (shutil.which("python3", path=search) if python == "python" else None)
    if record is None or not record.packages or path is None:
        return []
    found = _installed(path, [each for group in record.packages for each in group])
    if found is None:
        return []
    lacks = [group for group in record.packages if not any(each.module in found for each in group)]
    said = []
    if lacks:
        needed = ", ".join(" or ".join(map(str, group)) for group in lacks)
        install = " ".join(f"'{group[0]}'" for group in lacks)
        said.append(f"the format {record.name} needs {needed}, and {path} has none; fix: {path} -m pip install {install}")
    said += [
        f"the format {record.name} needs {each}, and {path} has {found[each.module]}; fix: {path} -m pip install '{each}'"
        for group in record.packages
        for each in group
        if found.get(each.module) and _is_older(found[each.module], each.least)
    ]
    return said


def _installed(path: str, packages: Sequence[Package]) -> dict[str, str] | None:
    """The version by module of those that are there; None where the interpreter cannot be asked."""
    asked = json.dumps([(each.module, each.name) for each in packages])
    try:
        done = subprocess.run(
            [path, "-I", "-c", _LOOK, asked], stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=True
        )
        found: dict[str, str] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return found


def _is_older(version: str, least: str) -> bool:
    return bool(least) and _numbers(version) < _numbers(least)


def _numbers(version: str) -> list[int]:
    return [int(part) if part.isdigit() else 0 for part in version.split(".")[:3]]
