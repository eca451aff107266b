"""Files of Go modules: definitions (CRDs) of other systems in the cluster, as published."""

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
"""Each module with its version and the checksum of its content."""


def definitions(module: str, folder: str) -> list[dict[str, Any]]:
    """Return the CustomResourceDefinitions in a folder of a module.

    Raises:
        ProgramsMissingError: Go is not installed, or the module cannot be downloaded.
    """
    found = []
    for path in sorted((_fetched(module) / folder).glob("*.yaml")):
        found += [one for one in yaml.safe_load_all(path.read_text()) if one and one["kind"] == "CustomResourceDefinition"]
    return found


def _fetched(module: str) -> Path:
    """Return the folder of the module; it is downloaded once."""
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
