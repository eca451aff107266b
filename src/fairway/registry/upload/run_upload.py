"""Checkpoints and outputs that the pods of a run uploaded because they share no volume.

`carried/NAMESPACE/RUN/checkpoints/SEQUENCE-step-N.tar` and `carried/NAMESPACE/RUN/outputs/NAME/`. Archives are not trusted: a
checkpoint is kept if its files are those of its manifest, byte by byte, and no path leads out of its folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fairway.app.system import crash_point
from fairway.errors import NotFoundError, RefusedError
from fairway.registry.upload.incoming_folder import IncomingFolder
from fairway.runtime import task_contract
from fairway.runtime.pod import archive

NEWEST = "latest"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,250}[a-z0-9])?")
_STEP = re.compile(r"step-[0-9]{12,}")
_KEPT = re.compile(r"(?P<sequence>[0-9]{12})-(?P<name>step-[0-9]{12,})\.tar")
_LARGEST_HEADER = 1 << 16
_LARGEST_MANIFEST = 1 << 24
_MOST_SEQUENCE = 10**12
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE)
_ABOUT_NEXT = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


@dataclass(frozen=True, slots=True)
class UploadedCheckpoint:
    """A complete checkpoint."""

    name: str
    """`step-000000000123`."""
    step: int
    sequence: int
    path: Path
    time: float
    """When it was saved."""


class RunUploads(IncomingFolder):
    """The folder of all uploads of runs. A file with its final name is complete and on disk, whatever crashed."""

    # Checkpoints

    def keep_checkpoint(self, namespace: str, run: str, name: str, arrived: Path, keep: int) -> UploadedCheckpoint:
        """Keep an archive as a checkpoint if it is a complete one; only the newest `keep` stay."""
        if not _STEP.fullmatch(name):
            message = f"{name!r} is not a valid checkpoint name"
            raise RefusedError(message, fix="checkpoints are saved with fairway.checkpoint.save")
        manifest = _checked(arrived)
        step, sequence = int(manifest["step"]), int(manifest["sequence"])
        if task_contract.STEP_FOLDER.format(step=step) != name or not 0 <= sequence < _MOST_SEQUENCE:
            message = f"the manifest of {name} has an unexpected step or sequence: step {step}, sequence {sequence}"
            raise RefusedError(message, fix="checkpoints are saved with fairway.checkpoint.save")
        folder = self._folder(namespace, run) / "checkpoints"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        target = folder / f"{sequence:012d}-{name}.tar"
        # When it was saved, as far as the pod's clock can be trusted: the work done since is what a loss costs.
        saved, now = manifest.get("time"), arrived.stat().st_mtime
        if isinstance(saved, int | float) and 0 < saved < now:
            os.utime(arrived, (now, saved))
        _sync(arrived)
        with crash_point.reach("registry.rename"):
            os.rename(arrived, target)
        _sync(folder)
        for old in self.checkpoints(namespace, run)[keep:]:
            with crash_point.reach("registry.remove"):
                old.path.unlink(missing_ok=True)
        return UploadedCheckpoint(name, step, sequence, target, target.stat().st_mtime)

    def checkpoints(self, namespace: str, run: str) -> list[UploadedCheckpoint]:
        """Return the checkpoints of a run, newest first."""
        folder = self._folder(namespace, run) / "checkpoints"
        kept = []
        for path in folder.iterdir() if folder.is_dir() else ():
            match = _KEPT.fullmatch(path.name)
            if match:
                step = int(match["name"].rpartition("-")[2])
                kept.append(UploadedCheckpoint(match["name"], step, int(match["sequence"]), path, path.stat().st_mtime))
        return sorted(kept, key=lambda checkpoint: (checkpoint.sequence, checkpoint.time), reverse=True)

    def checkpoint(self, namespace: str, run: str, name: str) -> UploadedCheckpoint:
        """Return the checkpoint with that name, or the newest."""
        kept = self.checkpoints(namespace, run)
        chosen = next((candidate for candidate in kept if name in (NEWEST, candidate.name)), None)
        if chosen is None:
            message = f"{namespace}/{run} has no checkpoint{'' if name == NEWEST else f' {name!r}'} here"
            raise NotFoundError(message, fix="the run starts from the beginning")
        return chosen

    # Outputs

    def keep_output(self, namespace: str, run: str, name: str, arrived: Path) -> None:
        """Store the files of an output; files that other tasks of the run sent under other names stay, as in a shared folder."""
        if not _NAME.fullmatch(name):
            message = f"{name!r} is not a valid output name"
            raise RefusedError(message, fix="use one of the document's outputs")
        _walk(arrived)
        target = self._folder(namespace, run) / "outputs" / name
        temporary = self._root / ".arriving" / secrets.token_hex(8)
        temporary.mkdir(mode=0o700, parents=True)
        try:
            with arrived.open("rb") as file:
                archive.unpack(file, str(temporary))
            for relative in archive.files_below(str(temporary)):
                path = target / relative
                path.parent.mkdir(parents=True, exist_ok=True)
                _sync(temporary / relative)
                with crash_point.reach("registry.rename"):
                    os.replace(temporary / relative, path)
        except archive.BadArchiveError as error:
            raise _refused(str(error)) from error
        except (IsADirectoryError, NotADirectoryError, FileExistsError) as error:
            raise _refused(f"a file and a folder have the same name ({error.filename})") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def output(self, namespace: str, run: str, name: str) -> Path:
        """Return the path of an output, whether or not it exists."""
        return self._folder(namespace, run) / "outputs" / name

    # The folder

    def runs(self) -> list[tuple[str, str]]:
        """Return namespace and name of the runs that have something here."""
        return [(path.parent.name, path.name) for path in self._root.glob("[!.]*/*") if path.is_dir()]

    def forget(self, namespace: str, run: str) -> None:
        """Remove everything that a run uploaded."""
        shutil.rmtree(self._folder(namespace, run), ignore_errors=True)

    def _folder(self, namespace: str, run: str) -> Path:
        if not _NAME.fullmatch(namespace) or not _NAME.fullmatch(run):
            message = f"{namespace}/{run} is not a valid run name"
            raise RefusedError(message, fix="use the run's own token")
        return self._root / namespace / run


def _checked(path: Path) -> dict[str, Any]:
    """Return the manifest of an archived checkpoint; refuse it unless exactly the files that it names are there."""
    files: dict[str, tuple[int, str]] = {}
    manifest: dict[str, Any] = {}
    _walk(path)
    with _reading(path) as opened:
        for member in opened:
            name = archive.checked_name(member.name)
            content = opened.extractfile(member) if member.isreg() and not member.issparse() else None
            if content is None or name in files:
                raise _refused(f"{name!r} is not a regular file, or occurs twice")
            if name == task_contract.MANIFEST:
                manifest = _manifest(content, member.size)
            else:
                files[name] = (member.size, hashlib.file_digest(content, "sha256").hexdigest())  # type: ignore[arg-type]
    listed = {name: (file.get("size"), file.get("sha256")) for name, file in manifest.get("files", {}).items()}
    if files != listed:
        differing = sorted(name for name in {*files, *listed} if files.get(name) != listed.get(name))
        raise _refused(f"it does not match its manifest: {', '.join(differing[:5]) or 'there is no manifest'}")
    if not manifest:
        raise _refused("there is no manifest")
    return manifest


def _manifest(content: IO[bytes], size: int) -> dict[str, Any]:
    if size > _LARGEST_MANIFEST:
        raise _refused(f"its manifest is too large: {size} bytes")
    try:
        manifest = json.loads(content.read())
        whole = isinstance(manifest["step"], int) and isinstance(manifest["sequence"], int)
        whole = whole and all(isinstance(file, dict) for file in manifest["files"].values())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _refused(f"its manifest is invalid ({error})") from error
    if not whole or manifest["step"] < 0:
        raise _refused("its manifest is invalid")
    return dict(manifest)


@contextmanager
def _reading(path: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(path, "r:") as opened:
            yield opened
    except (tarfile.TarError, EOFError, archive.BadArchiveError) as error:
        raise _refused(str(error)) from error


def _walk(path: Path) -> None:
    """Check the headers alone before anything reads by them: a size that no archive can have is refused."""
    size, at, count = path.stat().st_size, 0, 0
    with path.open("rb") as file:
        while at + tarfile.BLOCKSIZE <= size:
            file.seek(at)
            block = file.read(tarfile.BLOCKSIZE)
            if not any(block):
                return
            try:
                member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            except tarfile.TarError as error:
                raise _refused(str(error)) from error
            count += 1
            small = member.type in _ABOUT_NEXT and 0 <= member.size <= _LARGEST_HEADER
            if count > 2 * archive.MOST or not (member.type in _PLAIN or small) or not 0 <= member.size <= size:
                raise _refused(f"{member.name[:100]!r} is not a regular file, or is larger than the archive")
            at += tarfile.BLOCKSIZE + member.size + len(archive.padding(member.size))
    raise _refused("it is truncated")


def _refused(why: str) -> RefusedError:
    return RefusedError(f"this archive is refused: {why}", fix="send the files of a finished checkpoint, or of an output")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
