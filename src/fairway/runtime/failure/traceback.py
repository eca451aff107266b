"""Python tracebacks in a text: whose they are, what was raised, and a name for each. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

LONGEST = 400
"""Characters of one error that are kept."""
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_PREFIXES = (
    (re.compile(r"^\[rank(\d+)\]: ?"), 1),
    (re.compile(r"^\[default(\d+)\]: ?"), 1),
    (re.compile(r"^\[(?:[^\]\n]{1,80}@)?\d+,(\d+)\]<std(?:out|err|diag)>: ?"), 1),
    (re.compile(r"^\[[a-z][\w-]{0,40}-\d+(?:\.\d+)?\] ?"), 0),
    (re.compile(r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)? ?(?=\S|  )"), 0),
)
"""What launchers put in front of lines, and the group that is the rank: torch, torchrun, mpirun, our pods, clocks."""
_BEGIN = re.compile(r"^\s*[|+\s]*(?:Original |Exception Group )?Traceback \(most recent call last\):$")
_FRAME = re.compile(r'^\s*(?:\| )?\s*File "(?P<file>[^"\n]+)", line (?P<line>\d+)(, in (?P<name>.+))?$')
_RAISED = re.compile(r"^\s{0,4}(?:\| )?(?P<type>[A-Za-z_](?:[\w.]|<locals>)*)(?:: ?(?P<message>.*))?$")
_KIND = re.compile(r"(^|\.)([A-Z]\w*|\w*(Error|Exception|Exit|Interrupt|Warning|error|timeout))$")
_SYNTAX = re.compile(r"^(SyntaxError|IndentationError|TabError): ")
_PROCESS = re.compile(r"^-- Process (\d+) terminated with the following error:")


class Traceback:
    """One traceback."""

    __slots__ = ("frames", "message", "place", "rank", "type")

    def __init__(self, rank: int | None, place: int) -> None:
        self.rank = rank
        """The rank that printed it, where the lines say so."""
        self.place = place
        """The number of its last line."""
        self.frames: list[str] = []
        self.type = ""
        self.message = ""

    @property
    def error(self) -> str:
        """`RuntimeError: shape mismatch`: the type, and the first line of the message."""
        kind = self.type[9:] if self.type.startswith("builtins.") else self.type
        return f"{kind}: {self.message}"[:LONGEST] if self.message else kind[:LONGEST]

    @property
    def digest(self) -> str:
        """A short name made of the exception's type and its frames, never of its message."""
        return name_of([*self.frames, self.type])


def name_of(parts: Iterable[str]) -> str:
    """A short name for these texts."""
    # Loaded only here: it weighs more than all the rest of a supervisor, and most tasks end well.
    import hashlib  # noqa: PLC0415

    return hashlib.sha256("\n".join(parts).encode(errors="replace")).hexdigest()[:16]


def lines_of(text: str) -> list[tuple[int | None, str]]:
    """The lines as (rank, line): without colours and prefixes, of a progress bar its last state."""
    return [_plain(line) for line in _COLOUR.sub("", text).split("\n")]


def _plain(line: str) -> tuple[int | None, str]:
    line = line.rstrip("\r").rpartition("\r")[2]
    rank: int | None = None
    for _ in range(3):
        for pattern, group in _PREFIXES:
            found = pattern.match(line)
            if found:
                rank = int(found[group]) if group and rank is None else rank
                line = line[found.end() :]
                break
        else:
            break
    return rank, line.rstrip()


def tracebacks(lines: list[tuple[int | None, str]]) -> list[Traceback]:
    """Every finished traceback, in the order in which they end. Lines of several ranks may be mixed."""
    found: list[Traceback] = []
    for rank in dict.fromkeys(rank for rank, _ in lines):
        found += _of_stream([(place, line) for place, (whose, line) in enumerate(lines) if whose == rank], rank)
    return sorted(found, key=lambda one: one.place)


def _of_stream(lines: list[tuple[int, str]], rank: int | None) -> Iterator[Traceback]:
    open_: Traceback | None = None
    for number, (place, line) in enumerate(lines):
        process = _PROCESS.match(line)
        if process:
            rank = int(process[1])
        if _BEGIN.match(line):
            open_ = Traceback(rank, place)
            continue
        if open_ is None:
            if _SYNTAX.match(line):
                yield _syntax_error(lines, number, rank)
            continue
        frame = _FRAME.match(line)
        if frame:
            open_.frames.append(f"{frame['file']}:{frame['line']}:{frame['name'] or ''}")
            continue
        raised = _RAISED.match(line)
        if open_.frames and raised and _KIND.search(raised["type"]) and not line.startswith("    "):
            open_.type, open_.place = raised["type"], place
            open_.message = _message(raised["message"], [after for _, after in lines[number + 1 : number + 4]])
            yield open_
            open_ = None


def _syntax_error(lines: list[tuple[int, str]], number: int, rank: int | None) -> Traceback:
    """The interpreter shows no traceback for a script that it cannot read."""
    place, line = lines[number]
    made = Traceback(rank, place)
    made.frames = [f"{m['file']}:{m['line']}:" for _, before in lines[max(0, number - 4) : number] if (m := _FRAME.match(before))]
    made.type, _, made.message = line.partition(": ")
    return made


def _message(first: str | None, after: list[str]) -> str:
    """The first line of the message that says anything."""
    if first is None or first.strip():
        return (first or "").strip()
    following = next((line.strip() for line in after if line.strip()), "")
    return "" if _BEGIN.match(following) or set(following) <= set("=-*") else following
