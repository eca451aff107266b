"""Read recorded queues: one line per job, `submit_s,gpus,duration_s,model`, the format of the Philly virtual clusters.

The durations of those traces are reconstructed from throughputs on V100 GPUs, not measured: mention that when quoting them.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from fairway.errors import DocumentMistake, SpecError
from fairway.simulation.queue.recorded_job import RecordedJob

COLUMNS = ("submit_s", "gpus", "duration_s")


def read(path: Path) -> list[RecordedJob]:
    """Return the jobs of a trace, earliest first."""
    with path.open(encoding="utf-8", newline="") as lines:
        return parse(lines, str(path))


def parse(lines: Iterable[str], file: str = "") -> list[RecordedJob]:
    """Return the jobs in these lines, earliest first.

    The model is ignored, because it was drawn at random when the trace was made.

    Raises SpecError with every mistake.
    """
    rows = csv.DictReader(lines)
    missing = [name for name in COLUMNS if name not in (rows.fieldnames or ())]
    if missing:
        fix = f"the first line must name {', '.join(COLUMNS)}"
        raise SpecError([DocumentMistake(f"has no column {name}", file=file, line=1, fix=fix) for name in missing])
    entries: list[RecordedJob] = []
    mistakes: list[DocumentMistake] = []
    for line, row in enumerate(rows, 2):
        row_mistakes = [mistake for name in COLUMNS if (mistake := _mistake(row, name, file, line)) is not None]
        mistakes += row_mistakes
        if not row_mistakes:
            entries.append(RecordedJob(float(row["submit_s"]), int(float(row["gpus"])), float(row["duration_s"])))
    if mistakes:
        raise SpecError(mistakes)
    return sorted(entries, key=lambda entry: entry.submitted)


def _mistake(row: Mapping[str, str | None], name: str, file: str, line: int) -> DocumentMistake | None:
    text = row.get(name) or ""
    try:
        value = float(text)
    except ValueError:
        return DocumentMistake("is not a number", path=name, value=f'"{text}"', file=file, line=line)
    if not math.isfinite(value) or value < 0:
        return DocumentMistake("is not a count of seconds or GPUs", path=name, value=text, file=file, line=line)
    if name == "gpus" and (value < 1 or value != int(value)):
        return DocumentMistake(
            "is not a whole number of GPUs", path=name, value=text, file=file, line=line, fix="write 1 or more"
        )
    return None
