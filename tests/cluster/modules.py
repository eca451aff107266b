"""Files of Go modules: definitions of neighbours, as they publish them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from cluster.programs import ProgramsMissingError

MODULES = {
    "sigs.k8s.io/kueue": ("v0.14.0", "h1:lDR34L42/k17opLfkZbZ+taymLaPpryj3ZBbvKqs/N4="),
    "sigs.k8s.io/gateway-api": ("v1.6.3", "h1:lKpJa5bGlraC/QeACvCpsHLdmO6y0iKfzVl6gzaFEYc="),
    "volcano.sh/volcano": ("v1.10.0", "h1:+GzQinGgeV0j58WpWpxByOXgF+YfUPW55zghM8GqjF0="),
}
"""Each with its version and the sum of its content."""


def definitions(module: str, folder: str) -> list[dict[str, Any]]:
    """The CustomResourceDefinitions that lie in a folder of a module.

    Raises:
        ProgramsMissingError: there is no Go, or the module cannot be had.
    """
    found = []
    for path in sorted((_fetched(module) / folder).glob("*.yaml")):
        found += [one for one in yaml.safe_load_all(path.read_text()) if one and one["kind"] == "CustomResourceDefinition"]
    return found


def _fetched(module: str) -> Path:
    """Where the module lies; it is downloaded once."""
    go = shutil.which("go")
    if go is None:
        raise ProgramsMissingError(f"{module} cannot be had: there is no `go` on PATH; install Go 1.26")
    version, wanted = MODULES[module]
    command = [go, "mod", "download", "-json", f"{module}@{version}"]
    told = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=300, check=False)
    answer = json.loads(told.stdout or "{}")
    if told.returncode or "Dir" not in answer:
        raise ProgramsMissingError(f"{module} {version} cannot be had: {answer.get('Error') or told.stderr[-500:]}")
    assert answer["Sum"] == wanted, f"{module} {version} is not what it was: {answer['Sum']}"
    return Path(answer["Dir"])
