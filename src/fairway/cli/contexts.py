"""Where commands act: `local`, or a context of a kubeconfig. `fairway use` remembers one in the home."""

from __future__ import annotations

import os

from fairway.errors import UnavailableError
from fairway.sdk import place

LOCAL = place.LOCAL
FILE = "context"
"""In the home: the context's name, and on the next line the kubeconfig where one was named."""


def remembered() -> tuple[str, str]:
    """The context that was chosen and the kubeconfig that it is in; the latter is empty where it is the usual one."""
    try:
        with open(_path(), encoding="utf-8") as file:
            name, _, kubeconfig = file.read().strip().partition("\n")
    except OSError:
        return LOCAL, ""
    return name or LOCAL, kubeconfig


def remember(name: str, kubeconfig: str = "") -> None:
    """From now on commands act there."""
    path = _path()
    try:
        if name == LOCAL:
            if os.path.exists(path):
                os.unlink(path)
            return
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        aside = f"{path}.{os.getpid()}"
        with open(aside, "w", encoding="utf-8") as file:
            file.write(f"{name}\n{kubeconfig}\n" if kubeconfig else f"{name}\n")
        os.replace(aside, path)
    except OSError as error:
        message = f"the context cannot be remembered: {error.strerror}: {path}"
        raise UnavailableError(message, fix="set FAIRWAY_HOME to a folder that you may write, or use --context") from error


def find(given: str) -> tuple[str, str]:
    """A context and its kubeconfig: what was given by name or as a file, else what is remembered."""
    return place.find_context(given) if given else remembered()


def _path() -> str:
    return os.path.join(place.find_home(), FILE)
