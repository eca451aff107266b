"""Lists the content of a folder: files, links and empty folders, without what is ignored."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

from fairway.errors import RefusedError
from fairway.registry.ignore_rule import IGNORE_FILES, IgnoreRules, is_always
from fairway.registry.manifest import ManifestEntry, stays_inside
from fairway.runtime.symbolic_link import LinkEscapeError, check_links

_NEVER_CODE = {"pyvenv.cfg", "fairway.db"}
"""Files that mark a virtual environment and a Fairway home. The first works only where it was made; the second holds secrets."""
_MOST_NAMED = 5


@dataclass(slots=True)
class FolderScan:
    """The result of a scan, by path from the top."""

    files: dict[str, os.stat_result] = field(default_factory=dict)
    others: list[ManifestEntry] = field(default_factory=list)
    """Links and empty folders."""
    left_out: list[str] = field(default_factory=list)
    """Paths that the rules of ignore files excluded; folders with a slash. Without what is always ignored."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(state.st_size for state in self.files.values())

    def largest(self) -> list[tuple[str, int]]:
        """Return the largest paths right below the top and their sizes; folders with a slash."""
        sums: dict[str, int] = {}
        for path, state in self.files.items():
            top, slash, _ = path.partition("/")
            sums[top + slash] = sums.get(top + slash, 0) + state.st_size
        return sorted(sums.items(), key=lambda item: item[1], reverse=True)[:_MOST_NAMED]


def scan(folder: Path, *, ignoring: bool) -> FolderScan:
    """Scan everything below a folder; with `ignoring`, apply the rules of its ignore files.

    Refused, by name: links that leave the folder, devices, sockets and pipes, and folders that cannot be read.
    """
    walk = _FolderWalk(folder, ignoring)
    walk.enter("", IgnoreRules())
    walk.follow_links()
    if walk.refused:
        reasons = "; ".join(walk.refused[:_MOST_NAMED])
        more = f"; and {len(walk.refused) - _MOST_NAMED} more" if len(walk.refused) > _MOST_NAMED else ""
        message = f"{folder} cannot be kept: {reasons}{more}"
        raise RefusedError(
            message, fix=_advice(walk) if ignoring else "replace them with copies, or refer to the folder by its path"
        )
    return walk.found


def _advice(walk: _FolderWalk) -> str:
    """Return a fix for code that cannot be kept. A link to data becomes an input; a rule with a slash would not match it."""
    first = next(iter(walk.outer), "")
    if not first:
        return "leave them out with .fairwayignore, or run in place (--in-place)"
    name = re.sub(r"\W", "_", os.path.basename(first))
    variable = f"$FAIRWAY_DATA_{name.upper()}"
    return (
        f"run in place (--in-place), where the link works as it is; or put a line `{first}`, without a slash at its end, in "
        f".fairwayignore and pass it with --data {name}={walk.outer[first]}, which the program finds as {variable}"
    )


class _FolderWalk:
    def __init__(self, top: Path, ignoring: bool) -> None:
        self._top = os.path.realpath(top)
        self._ignoring = ignoring
        self.found = FolderScan()
        self.refused: list[str] = []
        self.outer: dict[str, str] = {}
        """Links that lead outside, and their targets."""

    def enter(self, inner: str, above: IgnoreRules) -> None:
        """Scan one folder (`a/b/`; empty for the top)."""
        try:
            with os.scandir(os.path.join(self._top, inner)) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self.refused.append(f"{inner or '.'} cannot be read ({error.strerror})")
            return
        names = {entry.name for entry in listed}
        if self._ignoring:
            if inner and not names.isdisjoint(_NEVER_CODE):
                return
            above = above.below(inner, [self._text(inner + name) for name in IGNORE_FILES if name in names])
        if inner and not listed:
            self.found.others.append(ManifestEntry(inner, 0o755))
        for entry in listed:
            self._take(entry, inner + entry.name, above)

    def _take(self, entry: os.DirEntry[str], path: str, rules: IgnoreRules) -> None:
        is_folder = entry.is_dir(follow_symlinks=False)
        if self._ignoring and rules.leave_out(path, entry.name, is_folder):
            if not is_always(entry.name):
                self.found.left_out.append(path + "/" * is_folder)
            return
        if is_folder:
            self.enter(path + "/", rules)
        elif entry.is_symlink():
            self._take_link(path)
        else:
            state = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(state.st_mode):
                self.found.files[path] = state
            else:
                self.refused.append(f"{path} is a {_kind(state.st_mode)}")

    def _take_link(self, path: str) -> None:
        full = os.path.join(self._top, path)
        target = os.readlink(full)
        if os.path.isabs(target) and _within(target, self._top):
            # In a copy, the absolute link would lead back to the original folder: make it relative.
            target = os.path.relpath(target, os.path.dirname(full))
        if stays_inside(path, target) and _within(os.path.realpath(full), self._top):
            self.found.others.append(ManifestEntry(path, 0o777, symlink=target))
        else:
            self.refused.append(f"{path} is a link to {os.readlink(full)}, outside of the folder")
            self.outer[path] = os.path.realpath(full)

    def follow_links(self) -> None:
        """Follow the links through each other, as programs will that get the kept folder."""
        try:
            check_links({entry.path: entry.symlink for entry in self.found.others if entry.symlink})
        except LinkEscapeError as error:
            self.refused.append(str(error))

    def _text(self, path: str) -> str:
        try:
            return Path(self._top, path).read_text("utf-8", "surrogateescape")
        except OSError:
            return ""


def _within(path: str, top: str) -> bool:
    return path == top or os.path.normpath(path).startswith(top.rstrip("/") + "/")


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISFIFO, "pipe"), (stat.S_ISSOCK, "socket"), (stat.S_ISBLK, "device"), (stat.S_ISCHR, "device"))
    return next((word for test, word in kinds if test(mode)), "special file")
