"""Where symbolic links of a folder lead, told from their texts before any of them exists. Standard library only, Python 3.9.

A link is read as the kernel reads it: each part of its target in turn, through other links of the same folder. Reading
the text alone is not enough: `up -> a/b/top/..` stays inside as text, and leads out when `a/b/top -> ../..`.
"""

from __future__ import annotations

from collections.abc import Mapping

MOST_HOPS = 40
"""Links that the kernel follows for one path."""
LONGEST = 4095
"""Bytes of a target."""

_Resolved = tuple[tuple[str, ...], int]
"""The place that a link leads to, as parts of a path within the folder, and how many links were followed."""


class EscapeError(ValueError):
    """A link leads out of its folder, or nowhere."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path!r} {why}")
        self.path = path
        self.why = why


def check_links(links: Mapping[str, str]) -> None:
    """Raise `EscapeError` for the first link (path: target) that leads out of the folder that all of them are in.

    Paths are relative, without `.` and `..`, and none lies below another one.
    """
    known: dict[str, _Resolved] = {}
    for path in links:
        _resolve(path, links, known, 0)


def stays_inside(path: str, target: str) -> bool:
    """Whether a link at the path, pointing to the target, stays within the folder, read as text."""
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
    place = path.split("/")[:-1]
    followed = 1
    for part in target.split("/"):
        if part in ("", "."):
            continue
        if part == "..":
            if not place:
                raise EscapeError(path, f"links to {target!r}, which other links lead outside of the folder")
            place.pop()
            continue
        place.append(part)
        name = "/".join(place)
        if name in links:
            if hops + followed >= MOST_HOPS:
                raise EscapeError(path, f"links to {target!r}, a circle or more than {MOST_HOPS} links in a row")
            found, more = _resolve(name, links, known, hops + followed)
            place, followed = list(found), followed + more
    if followed > MOST_HOPS:
        raise EscapeError(path, f"links to {target!r}, a circle or more than {MOST_HOPS} links in a row")
    known[path] = (tuple(place), followed)
    return known[path]


def _target(path: str, links: Mapping[str, str]) -> str:
    target = links[path]
    if len(target.encode("utf-8", "surrogateescape")) > LONGEST:
        raise EscapeError(path, f"links to a target of more than {LONGEST} bytes")
    if not stays_inside(path, target):
        raise EscapeError(path, f"links to {target!r}, outside of the folder")
    return target
