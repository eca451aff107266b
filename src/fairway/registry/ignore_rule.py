"""The rules of .gitignore: which paths of a folder are ignored.

The last matching rule decides; `!` includes a path again; a slash before the end anchors a pattern to the folder of its file; a
slash at the end matches folders only; nothing below an ignored folder is examined.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

ALWAYS = (
    ".git", ".hg", ".svn", ".jj", "__pycache__", ".venv", ".venvs", ".tox", ".nox", ".mypy_cache", ".ruff_cache",
    ".pytest_cache", ".hypothesis", ".ipynb_checkpoints", ".DS_Store", "*.pyc",
)  # fmt: skip
"""Always ignored, whatever the rules are."""

IGNORE_FILES = (".gitignore", ".fairwayignore")
"""Read in every folder; if both have a rule for a path, the second file decides."""

_always = re.compile("|".join(f"(?:{re.escape(name).replace(chr(92) + '*', '[^/]*')})" for name in ALWAYS))


def is_always(name: str) -> bool:
    """Return whether a name is always ignored."""
    return _always.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """One line of an ignore file."""

    pattern: re.Pattern[str]
    """Matches the path relative to the file's folder."""
    leaves_out: bool
    folders_only: bool


class IgnoreRules:
    """The rules for one folder: those of its own files after those of the folders above."""

    def __init__(self, levels: tuple[tuple[int, tuple[IgnoreRule, ...]], ...] = ()) -> None:
        self._levels = levels
        """Innermost first: the length of the folder's path, and its rules, last one first."""

    def below(self, folder: str, texts: list[str]) -> IgnoreRules:
        """Return the rules for a folder (`a/b/`, ending with a slash; empty for the top) with these ignore files."""
        own = tuple(rule for text in texts for rule in parse(text))
        return IgnoreRules(((len(folder), own[::-1]), *self._levels)) if own else self

    def leave_out(self, path: str, name: str, is_folder: bool) -> bool:
        """Return whether a path (relative to the top) is ignored, if its parent is not."""
        if is_always(name):
            return True
        for length, rules in self._levels:
            part = path[length:]
            for rule in rules:
                if (is_folder or not rule.folders_only) and rule.pattern.fullmatch(part):
                    return rule.leaves_out
        return False


def parse(text: str) -> list[IgnoreRule]:
    """Return the rules of one file; lines without meaning are skipped, as in git."""
    rules = []
    for line in text.removeprefix("\ufeff").split("\n"):
        rule = _rule(line.removesuffix("\r"))
        if rule is not None:
            rules.append(rule)
    return rules


def _rule(line: str) -> IgnoreRule | None:
    if line.startswith("#"):
        return None
    line = _without_trailing_spaces(line)
    leaves_out = not line.startswith("!")
    line = line if leaves_out else line[1:]
    folders_only = line.endswith("/")
    line = line[:-1] if folders_only else line
    if not line or (line.endswith("\\") and not line.endswith("\\\\")):
        return None
    tied = "/" in line
    expression = _translated(line.removeprefix("/"))
    if expression is None:
        return None
    return IgnoreRule(re.compile(expression if tied else f"(?:.*/)?{expression}", re.DOTALL), leaves_out, folders_only)


def _without_trailing_spaces(line: str) -> str:
    while line.endswith(" "):
        stem = line[:-1]
        # An odd number of backslashes escapes the space.
        if (len(stem) - len(stem.rstrip("\\"))) % 2:
            break
        line = stem
    return line


def _translated(pattern: str) -> str | None:
    """Return the pattern as a regular expression; None if it can match nothing."""
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "*":
            end = at
            while end < len(pattern) and pattern[end] == "*":
                end += 1
            at = _stars(pattern, at, end, parts)
            continue
        if char == "?":
            parts.append("[^/]")
        elif char == "[":
            bracket = _bracket(pattern, at)
            if bracket is None:
                return None
            parts.append(bracket[0])
            at = bracket[1]
            continue
        elif char == "\\" and at + 1 < len(pattern):
            at += 1
            parts.append(re.escape(pattern[at]))
        else:
            parts.append(re.escape(char))
        at += 1
    return "".join(parts)


def _stars(pattern: str, start: int, end: int, made: list[str]) -> int:
    """Translate stars; return where to go on. Two between slashes (or at an end) match any folders, else any part of a name."""
    whole = end - start >= 2 and (start == 0 or pattern[start - 1] == "/") and (end == len(pattern) or pattern[end] == "/")
    if not whole:
        made.append("[^/]*")
        return end
    if end == len(pattern):
        made.append(".+" if start else ".*")
        return end
    made.append("(?:.*/)?")
    return end + 1


def _bracket(pattern: str, start: int) -> tuple[str, int] | None:
    """Return a set of characters as an expression, and where to go on; None if it is not closed."""
    at = start + 1
    negated = pattern[at : at + 1] in ("!", "^")
    at += negated
    parts: list[str] = []
    first = True
    while first or pattern[at : at + 1] != "]":
        first = False
        if at >= len(pattern):
            return None
        posix_class = re.compile(r"\[:(\w+):\]").match(pattern, at)
        if posix_class:
            parts.append(_CLASSES.get(posix_class[1], ""))
            at = posix_class.end()
            continue
        if pattern[at] == "\\":
            at += 1
            if at >= len(pattern):
                return None
        low, at = pattern[at], at + 1
        if pattern[at : at + 1] == "-" and pattern[at + 1 : at + 2] not in ("]", ""):
            at += 1
            if pattern[at] == "\\":
                at += 1
            high, at = pattern[at : at + 1] or low, at + 1
            parts.append(f"{re.escape(low)}-{re.escape(high)}" if low <= high else "")
        else:
            parts.append(re.escape(low))
    inside = "".join(parts)
    if not inside:
        return ("[^/]" if negated else "(?!)"), at + 1
    return (f"(?!/)[^{inside}]" if negated else f"(?!/)[{inside}]"), at + 1


_CLASSES = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z", "space": r"\s",
    "punct": "!-/:-@\\[-`{-~", "xdigit": "0-9a-fA-F", "blank": " \t", "cntrl": "\x00-\x1f\x7f", "print": " -~", "graph": "!-~",
}  # fmt: skip
