"""Checks whether a port is free and, if it is not, which process holds it."""

from __future__ import annotations

import errno
import glob
import os
import socket
from pathlib import Path

from fairway.errors import ConflictError
from fairway.serving.router.keeper import bind
from fairway.serving.router.router_folder import kept_homes, read_port

_LISTEN = "0A"
"""The state of a listening socket in `/proc/net/tcp`."""


def check_free(service: str, host: str, port: int, folder: Path) -> None:
    """Raise `ConflictError` if the service cannot listen there. `folder` holds the routers of this home."""
    try:
        bind(host, port).close()
    except OSError as problem:
        raise cannot_listen(service, host, port, folder, problem) from None


def cannot_listen(service: str, host: str, port: int, folder: Path, problem: OSError) -> ConflictError:
    """Return the error that explains to the user why a service cannot listen."""
    prefix = f"{service}: cannot listen on {host}:{port}"
    if problem.errno == errno.EACCES:
        message = f"{prefix}: ports below 1024 are reserved for the administrator"
        return ConflictError(message, fix="give the service a port above 1023: `port: N` in its document, or `--port N`")
    if problem.errno != errno.EADDRINUSE:
        return ConflictError(f"{prefix}: {problem.strerror or problem}", fix="give the service another port, or another host")
    message = f"{prefix}: the port is taken by {_holder(service, port, folder)}"
    fix = (
        "give the service another port (`port: N` in its document, or `--port N`), or stop the process that listens there; "
        "the port is tried again"
    )
    return ConflictError(message, fix=fix)


def _holder(service: str, port: int, folder: Path) -> str:
    """Return a description of the process that listens at a port, as far as this user may see it."""
    for other, home in kept_homes(folder).items():
        if other != service and read_port(home) == port:
            return f"the service {other}"
    inodes = _listening(port)
    if not inodes:
        return "another process"
    for descriptor in glob.iglob("/proc/[0-9]*/fd/*"):
        try:
            if os.readlink(descriptor) in inodes:
                return _named(int(descriptor.split("/")[2]))
        except OSError:
            # The process has ended, or belongs to another user.
            continue
    return "a process of another user"


def _listening(port: int) -> set[str]:
    """Return the sockets that listen at a port, named as the links in `/proc` are."""
    sockets = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[1].endswith(f":{port:04X}") and fields[3] == _LISTEN:
                sockets.add(f"socket:[{fields[9]}]")
    return sockets


def _named(process: int) -> str:
    if process == os.getpid():
        return "this daemon itself"
    try:
        return f"process {process} ({Path(f'/proc/{process}/comm').read_text().strip()})"
    except OSError:
        return f"process {process}"


def is_served(path: Path) -> bool:
    """Return whether a process listens at a Unix socket; if none does, remove the file."""
    with socket.socket(socket.AF_UNIX) as pipe:
        pipe.setblocking(False)
        try:
            pipe.connect(str(path))
        except FileNotFoundError:
            return False
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return False
        except OSError:
            # The socket exists but cannot take a connection just now.
            return True
    return True
