"""Where the local engine keeps things: the home, and the socket that its daemon listens on.

The daemon and its clients agree through these functions and nothing else. Only `os` is imported:
every command passes here.
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
"""What is no context of a kubeconfig: this machine."""
LOG_NAME = "daemon.log"
LOCK_NAME = "daemon.lock"
"""Held by the daemon for as long as it lives."""
_SHARED = "/tmp"
SOCKET_LINK = "socket"
"""A symbolic link in the home to the socket in use: a caller whose runtime folder differs still finds it."""


def find_context(given: str) -> tuple[str, str]:
    """A context and the kubeconfig that it is in: what was given is the name of one, or the path of a kubeconfig."""
    return ("", os.path.abspath(given)) if given != LOCAL and os.sep in given and os.path.isfile(given) else (given, "")


def find_home() -> str:
    """The home in force: `FAIRWAY_HOME`, else `fairway` in the XDG state folder. Absolute; it need not exist."""
    given = os.environ.get(HOME, "")
    if given:
        return os.path.abspath(os.path.expanduser(given))
    state = os.environ.get("XDG_STATE_HOME", "") or os.path.expanduser("~/.local/state")
    return os.path.join(os.path.abspath(state), "fairway")


def find_runtime_folder() -> str:
    """The user's own folder for sockets; it need not exist. Where another user took the name in /tmp, one below `~`."""
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    if given:
        return os.path.join(given, "fairway")
    usual = f"{_SHARED}/fairway-{os.getuid()}"
    try:
        taken = os.lstat(usual).st_uid != os.getuid()
    except OSError:
        taken = False
    return os.path.expanduser("~/.fairway-run") if taken else usual


def find_socket(home: str) -> str:
    """The socket of the daemon of this home. Short whatever the home's path is: Unix sockets allow 107 bytes."""
    digest = blake2b(os.fsencode(os.path.realpath(home)), digest_size=8).hexdigest()
    return os.path.join(find_runtime_folder(), f"{digest}.sock")


def read_socket_link(home: str) -> str:
    """The socket that the daemon of this home says it uses; empty when it says nothing."""
    try:
        return os.readlink(os.path.join(home, SOCKET_LINK))
    except OSError:
        return ""


def make_runtime_folder(folder: str) -> None:
    """Make the folder for sockets, or refuse one that others could have prepared."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        found = os.lstat(folder)
    except OSError as error:
        message = f"the folder for sockets cannot be made: {error.strerror}: {folder}"
        raise UnavailableError(
            message,
            fix="set XDG_RUNTIME_DIR to a folder that is yours",
        ) from error
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        message = f"the folder for sockets is not yours alone: {folder}"
        raise UnavailableError(
            message,
            fix=f"remove it or `chmod 700 {folder}`, or set XDG_RUNTIME_DIR to a folder that is yours",
        )
