"""Why a folder cannot be written, and what to do about it: a full disk, a read-only mount, a foreign owner.

Standard library only, and few modules of it: the command line uses it too.
"""

from __future__ import annotations

import errno
import os
import pwd

FULL = (errno.ENOSPC, errno.EDQUOT)
CLOSED = (errno.EROFS, errno.EACCES, errno.EPERM)
_MEBI = 2**20


def mount_of(path: str, mounts: str | None = None) -> str:
    """The mount point of the file system on which a path lies, or would lie."""
    where = os.path.realpath(nearest(path))
    if mounts is None:
        try:
            mounts = _read("/proc/self/mounts")
        except OSError:
            return "/"
    found = "/"
    for line in mounts.splitlines():
        words = line.split(" ")
        if len(words) < 2:
            continue
        point = words[1].replace("\\040", " ")
        if (where == point or where.startswith(point.rstrip("/") + "/")) and len(point) >= len(found):
            found = point
    return found


def nearest(path: str) -> str:
    """The path itself, or the nearest folder above it that exists."""
    path = os.path.abspath(path)
    while not os.path.exists(path) and path != "/":
        path = os.path.dirname(path)
    return path


def has_room(path: str) -> bool:
    """Whether anything can be written there yet."""
    found = os.statvfs(nearest(path))
    return found.f_bavail * found.f_frsize > _MEBI and (not found.f_files or found.f_favail > 0)


def full(path: str, number: int | None = None) -> tuple[str, str]:
    """What is full, and the fix."""
    mount = mount_of(path)
    if number == errno.EDQUOT:
        return (
            f"your disk quota on {mount} is used up",
            f"remove files of yours below {mount} (`quota` shows the limit), or set FAIRWAY_HOME to another disk",
        )
    found = os.statvfs(nearest(path))
    free, files = found.f_bavail * found.f_frsize / _MEBI, found.f_favail
    left = f"{free:.0f} MiB" if not found.f_files or files > 100 else f"{files} files"
    return (
        f"the disk is full: the file system mounted at {mount} has room for {left}",
        f"remove files below {mount} that you do not need (`du -xh {mount} | sort -h | tail` shows the largest folders); "
        "Fairway goes on by itself once there is room",
    )


def closed(path: str) -> tuple[str, str]:
    """Why a path cannot be written though there is room, and the fix."""
    there = nearest(path)
    mount = mount_of(there)
    if os.statvfs(there).f_flag & os.ST_RDONLY:
        return (
            f"the file system mounted at {mount} is read-only",
            f"mount it for writing (mount -o remount,rw {mount}; `dmesg` tells whether an error made it read-only), "
            "or set FAIRWAY_HOME to a folder on another disk",
        )
    status = os.stat(there)
    if status.st_uid != os.geteuid():
        return (
            f"{there} belongs to {_user(status.st_uid)}, and you are {_user(os.geteuid())}",
            f"run as its owner, let root do `chown -R {_user(os.geteuid())} {there}`, or set FAIRWAY_HOME to a folder of yours",
        )
    return (
        f"the permissions of {there} ({status.st_mode & 0o7777:04o}) do not let you write",
        f"chmod u+rwX {there}, or set FAIRWAY_HOME to another folder of yours",
    )


def explain(error: OSError, path: str) -> tuple[str, str] | None:
    """What and fix for an error of the operating system about a path; None when it is about neither room nor rights."""
    if error.errno in FULL:
        return full(path, error.errno)
    if error.errno in CLOSED:
        return closed(path)
    return None


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"uid {number}"


def _read(path: str) -> str:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = []
        while piece := os.read(handle, 1 << 16):
            pieces.append(piece)
    finally:
        os.close(handle)
    return os.fsdecode(b"".join(pieces))
