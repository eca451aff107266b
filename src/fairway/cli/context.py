"""The context in which commands act: `local`, or a context of a kubeconfig. `fairway use` stores the choice in the home."""

from __future__ import annotations

import os

from fairway.errors import UnavailableError
from fairway.sdk.transport import local_path

LOCAL = local_path.LOCAL
FILE = "context"
"""File in the home: the context's name and, on the next line, the kubeconfig if the user named one."""


def remembered() -> tuple[str, str]:
    """Return the stored context and its kubeconfig, which is empty for the default kubeconfig."""
    try:
        with open(_path(), encoding="utf-8") as file:
            name, _, kubeconfig = file.read().strip().partition("\n")
    except OSError:
        return LOCAL, ""
    return name or LOCAL, kubeconfig


def remember(name: str, kubeconfig: str = "") -> None:
    """Store the context in which later commands act."""
    path = _path()
    try:
        if name == LOCAL:
            if os.path.exists(path):
                os.unlink(path)
            return
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        temporary = f"{path}.{os.getpid()}"
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(f"{name}\n{kubeconfig}\n" if kubeconfig else f"{name}\n")
        os.replace(temporary, path)
    except OSError as error:
        message = f"the context cannot be stored: {error.strerror}: {path}"
        raise UnavailableError(message, fix="set FAIRWAY_HOME to a folder that you can write to, or use --context") from error


def find(given: str) -> tuple[str, str]:
    """Return a context and its kubeconfig: those given by name or as a file, else the stored ones."""
    return local_path.find_context(given) if given else remembered()


def _path() -> str:
    return os.path.join(local_path.find_home(), FILE)
