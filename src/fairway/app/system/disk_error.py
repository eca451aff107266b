"""Explain why a folder cannot be written, and what to do: a full disk, a read-only mount, a foreign owner.

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
    """Return the mount point of the file system that contains a path, or would contain it."""
    where = os.path.realpath(nearest(path))
    if mounts is None:
        try:
            mounts = _read("/proc/self/mounts")
        except OSError:
            return "/"
    mount_point = "/"
    for line in mounts.splitlines():
        words = line.split(" ")
        if len(words) < 2:
            continue
        point = words[1].replace("\\040", " ")
        if (where == point or where.startswith(point.rstrip("/") + "/")) and len(point) >= len(mount_point):
            mount_point = point
    return mount_point


def nearest(path: str) -> str:
    """Return the path itself, or the nearest folder above it that exists."""
    path = os.path.abspath(path)
    while not os.path.exists(path) and path != "/":
        path = os.path.dirname(path)
    return path


def has_room(path: str) -> bool:
    """Return whether the file system of a path has space left."""
    stats = os.statvfs(nearest(path))
    return stats.f_bavail * stats.f_frsize > _MEBI and (not stats.f_files or stats.f_favail > 0)


def full(path: str, number: int | None = None) -> tuple[str, str]:
    """Describe which file system is full, and the fix."""
    mount = mount_of(path)
    if number == errno.EDQUOT:
        return (
            f"your disk quota on {mount} is used up",
            f"remove files of yours below {mount} (`quota` shows the limit), or set FAIRWAY_HOME to another disk",
        )
    stats = os.statvfs(nearest(path))
    free, files = stats.f_bavail * stats.f_frsize / _MEBI, stats.f_favail
    remaining = f"{free:.0f} MiB" if not stats.f_files or files > 100 else f"{files} files"
    return (
        f"the disk is full: the file system mounted at {mount} has room for {remaining}",
        f"remove files below {mount} that you do not need (`du -xh {mount} | sort -h | tail` shows the largest folders); "
        "Fairway continues by itself once there is space",
    )


def closed(path: str) -> tuple[str, str]:
    """Describe why a path cannot be written although there is space, and the fix."""
    folder = nearest(path)
    mount = mount_of(folder)
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        return (
            f"the file system mounted at {mount} is read-only",
            f"mount it for writing (mount -o remount,rw {mount}; `dmesg` shows whether an error made it read-only), "
            "or set FAIRWAY_HOME to a folder on another disk",
        )
    status = os.stat(folder)
    if status.st_uid != os.geteuid():
        return (
            f"{folder} belongs to {_user(status.st_uid)}, and you are {_user(os.geteuid())}",
            f"run as its owner, let root do `chown -R {_user(os.geteuid())} {folder}`, or set FAIRWAY_HOME to a folder of yours",
        )
    return (
        f"the permissions of {folder} ({status.st_mode & 0o7777:04o}) do not let you write",
        f"chmod u+rwX {folder}, or set FAIRWAY_HOME to another folder of yours",
    )


def explain(error: OSError, path: str) -> tuple[str, str] | None:
    """Return a description and a fix for an `OSError` on a path; None if it is about neither space nor permissions."""
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
