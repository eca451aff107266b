"""What the pods of a run brought here because they share no volume: checkpoints and outputs.

`carried/NAMESPACE/RUN/checkpoints/SEQUENCE-step-N.tar` and `carried/NAMESPACE/RUN/outputs/NAME/`. Nothing of an archive is
believed: a checkpoint is kept when its files are those of its manifest, byte by byte, and no path leads out of its folder.
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

from fairway.app import crash
from fairway.errors import NotFoundError, RefusedError
from fairway.registry.landing import Landing
from fairway.runtime import contract
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
class KeptCheckpoint:
    """A checkpoint that is here, whole."""

    name: str
    """`step-000000000123`."""
    step: int
    sequence: int
    path: Path
    time: float
    """When it was saved."""


class Carried(Landing):
    """The folder of them. What has a name in it is whole and on the disk, whatever crashed."""

    # Checkpoints

    def keep_checkpoint(self, namespace: str, run: str, name: str, arrived: Path, keep: int) -> KeptCheckpoint:
        """Take an archive as a checkpoint if it is one, whole; only the newest `keep` stay."""
        if not _STEP.fullmatch(name):
            message = f"{name!r} is no name of a checkpoint"
            raise RefusedError(message, fix="checkpoints are saved with fairway.checkpoint.save")
        manifest = _checked(arrived)
        step, sequence = int(manifest["step"]), int(manifest["sequence"])
        if contract.STEP_FOLDER.format(step=step) != name or not 0 <= sequence < _MOST_SEQUENCE:
            message = f"the manifest of {name} says step {step}, sequence {sequence}"
            raise RefusedError(message, fix="checkpoints are saved with fairway.checkpoint.save")
        folder = self._folder(namespace, run) / "checkpoints"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        target = folder / f"{sequence:012d}-{name}.tar"
        # When it was saved, as far as the pod's clock is to be believed: what was done since is what a loss costs.
        saved, now = manifest.get("time"), arrived.stat().st_mtime
        if isinstance(saved, int | float) and 0 < saved < now:
            os.utime(arrived, (now, saved))
        _sync(arrived)
        with crash.reach("registry.rename"):
            os.rename(arrived, target)
        _sync(folder)
        for old in self.checkpoints(namespace, run)[keep:]:
            with crash.reach("registry.remove"):
                old.path.unlink(missing_ok=True)
        return KeptCheckpoint(name, step, sequence, target, target.stat().st_mtime)

    def checkpoints(self, namespace: str, run: str) -> list[KeptCheckpoint]:
        """Those of a run, the newest first."""
        folder = self._folder(namespace, run) / "checkpoints"
        found = []
        for path in folder.iterdir() if folder.is_dir() else ():
            match = _KEPT.fullmatch(path.name)
            if match:
                step = int(match["name"].rpartition("-")[2])
                found.append(KeptCheckpoint(match["name"], step, int(match["sequence"]), path, path.stat().st_mtime))
        return sorted(found, key=lambda one: (one.sequence, one.time), reverse=True)

    def checkpoint(self, namespace: str, run: str, name: str) -> KeptCheckpoint:
        """The one of that name, or the newest."""
        found = self.checkpoints(namespace, run)
        chosen = next((one for one in found if name in (NEWEST, one.name)), None)
        if chosen is None:
            message = f"{namespace}/{run} has no checkpoint{'' if name == NEWEST else f' {name!r}'} here"
            raise NotFoundError(message, fix="it begins at the start")
        return chosen

    # Outputs

    def keep_output(self, namespace: str, run: str, name: str, arrived: Path) -> None:
        """Lay the files of an output out; what another task of the run brought under other names stays, as in a shared folder."""
        if not _NAME.fullmatch(name):
            message = f"{name!r} is no name of an output"
            raise RefusedError(message, fix="name one of the document's outputs")
        _walk(arrived)
        target = self._folder(namespace, run) / "outputs" / name
        aside = self._root / ".arriving" / secrets.token_hex(8)
        aside.mkdir(mode=0o700, parents=True)
        try:
            with arrived.open("rb") as file:
                archive.unpack(file, str(aside))
            for relative in archive.files_below(str(aside)):
                place = target / relative
                place.parent.mkdir(parents=True, exist_ok=True)
                _sync(aside / relative)
                with crash.reach("registry.rename"):
                    os.replace(aside / relative, place)
        except archive.BadArchiveError as error:
            raise _refused(str(error)) from error
        except (IsADirectoryError, NotADirectoryError, FileExistsError) as error:
            raise _refused(f"a file and a folder have the same name ({error.filename})") from error
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def output(self, namespace: str, run: str, name: str) -> Path:
        """Where an output lies, or would."""
        return self._folder(namespace, run) / "outputs" / name

    # The folder

    def runs(self) -> list[tuple[str, str]]:
        """Namespace and name of the runs that have something here."""
        return [(path.parent.name, path.name) for path in self._root.glob("[!.]*/*") if path.is_dir()]

    def forget(self, namespace: str, run: str) -> None:
        """Remove all that a run brought."""
        shutil.rmtree(self._folder(namespace, run), ignore_errors=True)

    def _folder(self, namespace: str, run: str) -> Path:
        if not _NAME.fullmatch(namespace) or not _NAME.fullmatch(run):
            message = f"{namespace}/{run} is no name of a run"
            raise RefusedError(message, fix="use the token that the run was given")
        return self._root / namespace / run


def _checked(path: Path) -> dict[str, Any]:
    """The manifest of an archived checkpoint, when all that it names is there as it says, and nothing else."""
    found: dict[str, tuple[int, str]] = {}
    manifest: dict[str, Any] = {}
    _walk(path)
    with _reading(path) as opened:
        for member in opened:
            name = archive.checked_name(member.name)
            content = opened.extractfile(member) if member.isreg() and not member.issparse() else None
            if content is None or name in found:
                raise _refused(f"{name!r} is no plain file, or is there twice")
            if name == contract.MANIFEST:
                manifest = _manifest(content, member.size)
            else:
                found[name] = (member.size, hashlib.file_digest(content, "sha256").hexdigest())  # type: ignore[arg-type]
    listed = {name: (one.get("size"), one.get("sha256")) for name, one in manifest.get("files", {}).items()}
    if found != listed:
        wrong = sorted(name for name in {*found, *listed} if found.get(name) != listed.get(name))
        raise _refused(f"it is not what its manifest says: {', '.join(wrong[:5]) or 'there is no manifest'}")
    if not manifest:
        raise _refused("there is no manifest")
    return manifest


def _manifest(content: IO[bytes], size: int) -> dict[str, Any]:
    if size > _LARGEST_MANIFEST:
        raise _refused(f"its manifest has {size} bytes")
    try:
        manifest = json.loads(content.read())
        whole = isinstance(manifest["step"], int) and isinstance(manifest["sequence"], int)
        whole = whole and all(isinstance(one, dict) for one in manifest["files"].values())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _refused(f"its manifest is none ({error})") from error
    if not whole or manifest["step"] < 0:
        raise _refused("its manifest is none")
    return dict(manifest)


@contextmanager
def _reading(path: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(path, "r:") as opened:
            yield opened
    except (tarfile.TarError, EOFError, archive.BadArchiveError) as error:
        raise _refused(str(error)) from error


def _walk(path: Path) -> None:
    """Look at the headers alone, before anything is read by them: of sizes that nobody has, none is believed."""
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
                raise _refused(f"{member.name[:100]!r} is no plain file, or larger than the archive")
            at += tarfile.BLOCKSIZE + member.size + len(archive.padding(member.size))
    raise _refused("it breaks off")


def _refused(why: str) -> RefusedError:
    return RefusedError(f"this archive is refused: {why}", fix="send the files of a finished checkpoint, or of an output")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
