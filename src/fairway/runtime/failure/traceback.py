"""Find Python tracebacks in a text: their rank, the exception raised, and a digest of each. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

LONGEST = 400
"""Maximum length of a stored error, in characters."""
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_PREFIXES = (
    (re.compile(r"^\[rank(\d+)\]: ?"), 1),
    (re.compile(r"^\[default(\d+)\]: ?"), 1),
    (re.compile(r"^\[(?:[^\]\n]{1,80}@)?\d+,(\d+)\]<std(?:out|err|diag)>: ?"), 1),
    (re.compile(r"^\[[a-z][\w-]{0,40}-\d+(?:\.\d+)?\] ?"), 0),
    (re.compile(r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)? ?(?=\S|  )"), 0),
)
"""Line prefixes, and the group that is the rank: torch, torchrun, mpirun, Fairway's pods, timestamps."""
_BEGIN = re.compile(r"^\s*[|+\s]*(?:Original |Exception Group )?Traceback \(most recent call last\):$")
_FRAME = re.compile(r'^\s*(?:\| )?\s*File "(?P<file>[^"\n]+)", line (?P<line>\d+)(, in (?P<name>.+))?$')
_RAISED = re.compile(r"^\s{0,4}(?:\| )?(?P<type>[A-Za-z_](?:[\w.]|<locals>)*)(?:: ?(?P<message>.*))?$")
_KIND = re.compile(r"(^|\.)([A-Z]\w*|\w*(Error|Exception|Exit|Interrupt|Warning|error|timeout))$")
_SYNTAX = re.compile(r"^(SyntaxError|IndentationError|TabError): ")
_PROCESS = re.compile(r"^-- Process (\d+) terminated with the following error:")


class PrintedTraceback:
    """One traceback."""

    __slots__ = ("frames", "message", "place", "rank", "type")

    def __init__(self, rank: int | None, place: int) -> None:
        self.rank = rank
        """The rank that printed it, if the lines show it."""
        self.place = place
        """Number of its last line."""
        self.frames: list[str] = []
        self.type = ""
        self.message = ""

    @property
    def error(self) -> str:
        """The type and the first line of the message: `RuntimeError: shape mismatch`."""
        kind = self.type[9:] if self.type.startswith("builtins.") else self.type
        return f"{kind}: {self.message}"[:LONGEST] if self.message else kind[:LONGEST]

    @property
    def digest(self) -> str:
        """A short digest of the exception's type and its frames; the message is not included."""
        return name_of([*self.frames, self.type])


def name_of(parts: Iterable[str]) -> str:
    """Return a short digest of these texts."""
    # Imported only here: it needs more memory than the rest of a supervisor, and most tasks succeed.
    import hashlib  # noqa: PLC0415

    return hashlib.sha256("\n".join(parts).encode(errors="replace")).hexdigest()[:16]


def lines_of(text: str) -> list[tuple[int | None, str]]:
    """Return the lines as (rank, line), without colours and prefixes; of a progress bar only its last state."""
    return [_plain(line) for line in _COLOUR.sub("", text).split("\n")]


def _plain(line: str) -> tuple[int | None, str]:
    line = line.rstrip("\r").rpartition("\r")[2]
    rank: int | None = None
    for _ in range(3):
        for pattern, group in _PREFIXES:
            match = pattern.match(line)
            if match:
                rank = int(match[group]) if group and rank is None else rank
                line = line[match.end() :]
                break
        else:
            break
    return rank, line.rstrip()


def tracebacks(lines: list[tuple[int | None, str]]) -> list[PrintedTraceback]:
    """Return all complete tracebacks, in the order in which they end. Lines of several ranks may be mixed."""
    complete: list[PrintedTraceback] = []
    for rank in dict.fromkeys(rank for rank, _ in lines):
        complete += _of_stream([(index, line) for index, (line_rank, line) in enumerate(lines) if line_rank == rank], rank)
    return sorted(complete, key=lambda traceback: traceback.place)


def _of_stream(lines: list[tuple[int, str]], rank: int | None) -> Iterator[PrintedTraceback]:
    open_: PrintedTraceback | None = None
    for number, (place, line) in enumerate(lines):
        process = _PROCESS.match(line)
        if process:
            rank = int(process[1])
        if _BEGIN.match(line):
            open_ = PrintedTraceback(rank, place)
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
            open_.message = _message(raised["message"], [following_line for _, following_line in lines[number + 1 : number + 4]])
            yield open_
            open_ = None


def _syntax_error(lines: list[tuple[int, str]], number: int, rank: int | None) -> PrintedTraceback:
    """Build the traceback of a syntax error: the interpreter prints none for a script that it cannot parse."""
    place, line = lines[number]
    traceback = PrintedTraceback(rank, place)
    traceback.frames = [
        f"{m['file']}:{m['line']}:"
        for _, previous_line in lines[max(0, number - 4) : number]
        if (m := _FRAME.match(previous_line))
    ]
    traceback.type, _, traceback.message = line.partition(": ")
    return traceback


def _message(first: str | None, after: list[str]) -> str:
    """Return the first non-empty line of the message."""
    if first is None or first.strip():
        return (first or "").strip()
    following = next((line.strip() for line in after if line.strip()), "")
    return "" if _BEGIN.match(following) or set(following) <= set("=-*") else following
