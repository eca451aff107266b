"""The files of sampled requests: left by replicas in their folders, or uploaded from the node on which they run."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from fairway.app.port.serving import SampleFile
from fairway.app.system import crash_point
from fairway.errors import RefusedError, UnavailableError
from fairway.plan.service.replica import OWN_NAMESPACE
from fairway.registry.upload.incoming_folder import IncomingFolder
from fairway.runtime.appended_file import whole_lines
from fairway.state.job import JobKey

WAITING = 256 << 20
"""Maximum bytes of one replica kept here until they are in a dataset; the replica keeps at most as many itself."""
_NAME = re.compile(r"requests-[0-9]{13,15}-[0-9]{1,10}-[0-9]{1,10}\.jsonl")


class LocalSampleFolder:
    """The folders `NAMESPACE.services/RUN/shared/requests` below the folder of all runs. Implements the `SampleFiles` port."""

    def __init__(self, jobs: Path) -> None:
        self._jobs = jobs

    def runs(self) -> list[JobKey]:
        """Return the replicas that have a folder of samples."""
        replicas = []
        for namespace in _listed(self._jobs):
            if namespace.endswith(OWN_NAMESPACE):
                runs = [JobKey(namespace, name) for name in _listed(self._jobs / namespace)]
                replicas += [run for run in runs if self._folder(run).is_dir()]
        return replicas

    def finish(self, run: JobKey) -> None:
        """Truncate partial files after their last whole request and rename them to complete files; remove an empty folder."""
        folder = self._folder(run)
        for name in _listed(folder):
            if name.endswith(".jsonl.part"):
                path = folder / name
                with path.open("rb+") as file:
                    complete_size = whole_lines(file.fileno())
                    file.truncate(complete_size)
                with crash_point.reach("samples.rename"):
                    if complete_size:
                        path.rename(path.with_suffix(""))
                    else:
                        path.unlink()
        if not _listed(folder):
            with contextlib.suppress(OSError):  # A file may have arrived in the meantime.
                folder.rmdir()

    def complete(self, run: JobKey) -> list[SampleFile]:
        """Return the complete files of a replica, without files that are removed in the meantime."""
        files = []
        for name in _listed(self._folder(run)):
            if name.endswith(".jsonl"):
                path = self._folder(run) / name
                try:
                    state = path.stat()
                except FileNotFoundError:
                    continue
                files.append(SampleFile(f"{path.stem}-{run.name}.jsonl", path, state.st_size, state.st_mtime))
        return files

    def remove(self, files: Iterable[SampleFile]) -> None:
        """Delete files that have been copied into a dataset."""
        for file in files:
            with crash_point.reach("samples.remove"):
                file.path.unlink(missing_ok=True)

    def _folder(self, run: JobKey) -> Path:
        return self._jobs / run.namespace / run.name / "shared" / "requests"


class UploadedSampleFolder(LocalSampleFolder, IncomingFolder):
    """Files uploaded by replicas, in the same folders as if the replicas had written them here.

    A file that has its final name is complete and synced to disk.
    """

    def __init__(self, root: Path) -> None:
        LocalSampleFolder.__init__(self, root)
        IncomingFolder.__init__(self, root)

    def keep(self, run: JobKey, pod: str, name: str, arrived: Path) -> None:
        """Store an uploaded file of a replica, unless it exists already: a repeated upload has the same content.

        Raises `RefusedError` when it is not a file of samples, and `UnavailableError` when too many bytes of the replica are
        waiting here.
        """
        if not _NAME.fullmatch(name):
            message = f"{name!r} is not the name of a sample file"
            raise RefusedError(message, fix="send files as Fairway's server writes them: requests-TIME-PID-NUMBER.jsonl")
        with arrived.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not size or whole_lines(file.fileno()) != size:
                message = f"{name} ends in the middle of a line"
                raise RefusedError(message, fix="send whole requests")
            os.fsync(file.fileno())
        # Two pods may be the same replica, one after the other, and processes in pods often have the same process id.
        target = self._folder(run) / f"{name.removesuffix('.jsonl')}-{pod.rpartition('-')[2]}.jsonl"
        if target.exists():
            return
        if size + sum(file.size for file in self.complete(run)) > WAITING:
            message = f"{WAITING >> 20} MiB of samples of {run} are already waiting to be added to a dataset"
            raise UnavailableError(message, fix="send it again later, or sample fewer requests")
        self._put(arrived, target)

    def _put(self, arrived: Path, target: Path) -> None:
        with crash_point.reach("samples.rename"):
            while True:
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                try:
                    arrived.rename(target)
                    break
                except FileNotFoundError:  # `finish` removed the folder because it was empty.
                    if not arrived.exists():
                        raise
        handle = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def forget(self, run: JobKey) -> None:
        """Remove all files of a replica."""
        shutil.rmtree(self._jobs / run.namespace / run.name, ignore_errors=True)


def _listed(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
