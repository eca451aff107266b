"""Paths of the local engine: the home, and the socket that its daemon listens on.

The daemon and its clients find each other only through these functions. Only `os` is imported, because every
command imports this module.
"""

from __future__ import annotations

import os

from fairway.errors import UnavailableError

try:
    # hashlib costs as much as half of a bare interpreter's start; this is the same function, from the same build.
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

HOME = "FAIRWAY_HOME"
LOCAL = "local"
"""Name of the context that means this machine; it is not in a kubeconfig."""
LOG_NAME = "daemon.log"
LOCK_NAME = "daemon.lock"
"""Lock file that the daemon holds for its whole life."""
_SHARED = "/tmp"
SOCKET_LINK = "socket"
"""A symbolic link in the home to the socket in use: a caller whose runtime folder differs still finds it."""


def find_context(given: str) -> tuple[str, str]:
    """Return a context and its kubeconfig; `given` is the name of a context or the path of a kubeconfig."""
    return ("", os.path.abspath(given)) if given != LOCAL and os.sep in given and os.path.isfile(given) else (given, "")


def find_home() -> str:
    """Return the home: `FAIRWAY_HOME`, else `fairway` in the XDG state folder. The path is absolute and may not exist."""
    home = os.environ.get(HOME, "")
    if home:
        return os.path.abspath(os.path.expanduser(home))
    state = os.environ.get("XDG_STATE_HOME", "") or os.path.expanduser("~/.local/state")
    return os.path.join(os.path.abspath(state), "fairway")


def find_runtime_folder() -> str:
    """Return the user's own folder for sockets, which may not exist; one below `~` if another user owns the name in /tmp."""
    xdg_folder = os.environ.get("XDG_RUNTIME_DIR", "")
    if xdg_folder:
        return os.path.join(xdg_folder, "fairway")
    default_folder = f"{_SHARED}/fairway-{os.getuid()}"
    try:
        is_foreign = os.lstat(default_folder).st_uid != os.getuid()
    except OSError:
        is_foreign = False
    return os.path.expanduser("~/.fairway-run") if is_foreign else default_folder


def find_socket(home: str) -> str:
    """Return the socket of the daemon of a home. Short for any home's path: Unix sockets allow 107 bytes."""
    digest = blake2b(os.fsencode(os.path.realpath(home)), digest_size=8).hexdigest()
    return os.path.join(find_runtime_folder(), f"{digest}.sock")


def read_socket_link(home: str) -> str:
    """Return the socket that the daemon's link in this home points to; empty if there is no link."""
    try:
        return os.readlink(os.path.join(home, SOCKET_LINK))
    except OSError:
        return ""


def make_runtime_folder(folder: str) -> None:
    """Create the folder for sockets; refuse an existing one that another user could have prepared."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        stat = os.lstat(folder)
    except OSError as error:
        message = f"the folder for sockets cannot be created: {error.strerror}: {folder}"
        raise UnavailableError(
            message,
            fix="set XDG_RUNTIME_DIR to a folder that only you can access",
        ) from error
    if stat.st_uid != os.getuid() or stat.st_mode & 0o077:
        message = f"other users can access the folder for sockets: {folder}"
        raise UnavailableError(
            message,
            fix=f"remove it or `chmod 700 {folder}`, or set XDG_RUNTIME_DIR to a folder that only you can access",
        )
