"""Check where symbolic links of a folder lead, from their targets alone, before any of them is created.

Targets are resolved as the kernel does it: each part of the target in turn, through other links of the same folder. Checking the
text alone is not enough: `up -> a/b/top/..` stays inside as text, but leads outside if `a/b/top -> ../..`. Standard library only,
Python 3.9.
"""

from __future__ import annotations

from collections.abc import Mapping

MOST_HOPS = 40
"""Maximum number of links that the kernel follows for one path."""
LONGEST = 4095
"""Maximum length of a target in bytes."""

_Resolved = tuple[tuple[str, ...], int]
"""The destination of a link, as parts of a path within the folder, and how many links were followed."""


class LinkEscapeError(ValueError):
    """Raised when a link leads out of its folder, or nowhere."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path!r} {why}")
        self.path = path
        self.why = why


def check_links(links: Mapping[str, str]) -> None:
    """Raise `LinkEscapeError` for the first link (path: target) that leads out of the folder that contains all of them.

    Paths are relative, without `.` and `..`, and no path is below another one.
    """
    resolved: dict[str, _Resolved] = {}
    for path in links:
        _resolve(path, links, resolved, 0)


def stays_inside(path: str, target: str) -> bool:
    """Return whether a link at the path, pointing to the target, stays within the folder, judged by its text."""
    if not target or target.startswith("/") or "\0" in target:
        return False
    depth = path.count("/")
    for part in target.split("/"):
        if part in ("", "."):
            continue
        depth += -1 if part == ".." else 1
        if depth < 0:
            return False
    return True


def _resolve(path: str, links: Mapping[str, str], known: dict[str, _Resolved], hops: int) -> _Resolved:
    if path in known:
        return known[path]
    target = _target(path, links)
    location = path.split("/")[:-1]
    followed = 1
    for part in target.split("/"):
        if part in ("", "."):
            continue
        if part == "..":
            if not location:
                raise LinkEscapeError(path, f"links to {target!r}, which leads outside of the folder through other links")
            location.pop()
            continue
        location.append(part)
        name = "/".join(location)
        if name in links:
            if hops + followed >= MOST_HOPS:
                raise LinkEscapeError(path, f"links to {target!r}, a cycle or more than {MOST_HOPS} links in a row")
            destination, hops_below = _resolve(name, links, known, hops + followed)
            location, followed = list(destination), followed + hops_below
    if followed > MOST_HOPS:
        raise LinkEscapeError(path, f"links to {target!r}, a cycle or more than {MOST_HOPS} links in a row")
    known[path] = (tuple(location), followed)
    return known[path]


def _target(path: str, links: Mapping[str, str]) -> str:
    target = links[path]
    if len(target.encode("utf-8", "surrogateescape")) > LONGEST:
        raise LinkEscapeError(path, f"links to a target of more than {LONGEST} bytes")
    if not stays_inside(path, target):
        raise LinkEscapeError(path, f"links to {target!r}, outside of the folder")
    return target
