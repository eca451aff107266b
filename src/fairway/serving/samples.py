"""The files of sampled requests that replicas leave in their folders."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from fairway.app import crash
from fairway.app.service_ports import SampleFile
from fairway.plan.service.replica import OWN_NAMESPACE
from fairway.state.job import JobKey

_BLOCK = 1 << 20


class SampleFolders:
    """`NAMESPACE.services/RUN/shared/requests` below the folder of all runs. The `SampleFiles` port."""

    def __init__(self, jobs: Path) -> None:
        self._jobs = jobs

    def runs(self) -> list[JobKey]:
        """The replicas of which something lies here."""
        found = []
        for namespace in _listed(self._jobs):
            if namespace.endswith(OWN_NAMESPACE):
                runs = [JobKey(namespace, name) for name in _listed(self._jobs / namespace)]
                found += [run for run in runs if self._folder(run).is_dir()]
        return found

    def finish(self, run: JobKey) -> None:
        """Cut off half a request at the end, and give the file the name of a complete one; an empty folder goes."""
        folder = self._folder(run)
        for name in _listed(folder):
            if name.endswith(".jsonl.part"):
                path = folder / name
                with path.open("rb+") as file:
                    whole = _whole_lines(file.fileno())
                    file.truncate(whole)
                with crash.reach("samples.rename"):
                    if whole:
                        path.rename(path.with_suffix(""))
                    else:
                        path.unlink()
        if not _listed(folder):
            folder.rmdir()

    def complete(self, run: JobKey) -> list[SampleFile]:
        """The complete files of a replica; one that goes meanwhile is left out."""
        found = []
        for name in _listed(self._folder(run)):
            if name.endswith(".jsonl"):
                path = self._folder(run) / name
                try:
                    state = path.stat()
                except FileNotFoundError:
                    continue
                found.append(SampleFile(f"{path.stem}-{run.name}.jsonl", path, state.st_size, state.st_mtime))
        return found

    def remove(self, files: Iterable[SampleFile]) -> None:
        """They are kept elsewhere."""
        for file in files:
            with crash.reach("samples.remove"):
                file.path.unlink(missing_ok=True)

    def _folder(self, run: JobKey) -> Path:
        return self._jobs / run.namespace / run.name / "shared" / "requests"


def _listed(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _whole_lines(handle: int) -> int:
    """The length of what ends with a line end."""
    end = os.fstat(handle).st_size
    while end > 0:
        start = max(0, end - _BLOCK)
        at = os.pread(handle, end - start, start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0
