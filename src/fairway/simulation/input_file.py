"""Read the input files of a simulation, with clear errors for wrong files."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TypeVar

from fairway.errors import DocumentMistake, SpecError, UsageError
from fairway.plan.scheduling.gang import TaskShape
from fairway.plan.scheduling.workload_mix import WorkloadMix
from fairway.simulation import openb_trace, philly_trace
from fairway.simulation.queue.recorded_job import RecordedJob
from fairway.state.node import ClusterNode
from fairway.units.suggestion import did_you_mean, nearest

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
_R = TypeVar("_R")


def read_nodes(path: str) -> list[ClusterNode]:
    """Read a list of nodes."""
    return _read_table(path, "--nodes", NODE_COLUMNS, openb_trace.read_nodes)


def read_pods(path: str) -> list[TaskShape]:
    """Read a list of pods."""
    return _read_table(path, "--pods", POD_COLUMNS, openb_trace.read_pods)


def read_order(path: str) -> openb_trace.ArrivalOrder:
    """Read the order in which pods arrive."""
    return _read(path, "--order", _check_order, openb_trace.read_order)


def read_mix(text: str) -> str | WorkloadMix:
    """Read what a policy knows of the workload: `given`, `learned`, or the mix of a list of pods in a file."""
    if text in ("given", "learned"):
        return text
    near = nearest(text, ("given", "learned"))
    if near and not Path(text).exists():
        raise UsageError(f"--mix {text}: neither given nor learned, and there is no file of that name", fix=f"write --mix {near}")
    return _read_table(text, "--mix", POD_COLUMNS, openb_trace.read_mix)


def read_jobs(path: str) -> list[RecordedJob]:
    """Read a recorded queue."""
    return _read_table(path, "--trace", philly_trace.COLUMNS, _parse_jobs)


def _parse_jobs(file: Path) -> list[RecordedJob]:
    with _open(file) as lines:
        return philly_trace.parse(lines, str(file))


def _read_table(path: str, flag: str, columns: Sequence[str], read: Callable[[Path], _R]) -> _R:
    return _read(path, flag, lambda file: _check_columns(file, columns), read)


def _read(path: str, flag: str, check: Callable[[Path], None], read: Callable[[Path], _R]) -> _R:
    file = Path(path)
    try:
        check(file)
        return read(file)
    except FileNotFoundError:
        raise UsageError(f"{flag} {path}: there is no such file", fix=_beside(file)) from None
    except IsADirectoryError:
        raise UsageError(f"{flag} {path} is a folder", fix="name a file in it") from None
    except (gzip.BadGzipFile, EOFError):
        raise UsageError(
            f"{flag} {path} is truncated, or not compressed", fix="check it with gzip -t, or remove .gz from its name"
        ) from None
    except UnicodeDecodeError:
        raise UsageError(
            f"{flag} {path} is not a text file", fix="name a CSV or JSON file; compressed files end in .gz"
        ) from None


def _open(file: Path) -> IO[str]:
    return gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8")


def _beside(file: Path) -> str:
    """Suggest the file that was probably meant."""
    try:
        names = [other.name for other in file.parent.iterdir()]
    except OSError:
        return f"there is no folder {file.parent} either"
    return did_you_mean(file.name, names) or f"look with: ls {file.parent}"


def _check_columns(file: Path, columns: Sequence[str]) -> None:
    with _open(file) as lines:
        header = next(csv.reader(lines), [])
    mistakes = []
    for name in columns:
        if name not in header:
            hint = did_you_mean(name, header) and f"rename the column {nearest(name, header, cutoff=0.6)} if it is meant"
            fix = hint or f"the first line must name {', '.join(columns)}"
            mistakes.append(DocumentMistake(f"has no column {name}", file=str(file), line=1, fix=fix))
    if mistakes:
        raise SpecError(mistakes)


def _check_order(file: Path) -> None:
    with _open(file) as text:
        try:
            order = json.load(text)
        except json.JSONDecodeError as problem:
            mistake = DocumentMistake(
                f"is not valid JSON: {problem.msg}", file=str(file), line=problem.lineno, column=problem.colno
            )
            raise SpecError([mistake]) from problem
    if not isinstance(order, dict) or not isinstance(order.get("pods"), list):
        fix = 'write {"pods": [indices in the list of pods, sorted by name], "node_rank": [...]}'
        raise SpecError([DocumentMistake("has no list `pods`", file=str(file), fix=fix)])
