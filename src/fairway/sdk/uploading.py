"""Files of this machine on their way to a cluster's registry: only what it lacks, in pieces, before the call that names them.

Written as verbs are: generators that say what to ask, for whoever asks it (`verb.py`). Whatever breaks off is done again by the
same verb; what has come is not sent again.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairway.errors import RefusedError, UnavailableError, UsageError
from fairway.registry.sources import manifest_of
from fairway.sdk import wire
from fairway.sdk.verb import Call, Steps
from fairway.state.model import ModelFacts

BLOBS = "/v1/blobs"
PIECE = 1 << 22
"""Bytes with a request: small enough for whatever lies between, and for the memory of both sides."""
MOST_PARTS = 2000
TRIES = 4
"""How often in a row nothing may come of asking."""
_BYTES = "application/octet-stream"

Told = Callable[[int, int], None]
"""Is called with the bytes that have arrived, and with how many are to."""


@dataclass(slots=True)
class _Content:
    """One content, and how far the cluster has it."""

    digest: str
    size: int
    source: Path | bytes
    have: int = 0
    checked: int = 0

    def read(self, most: int) -> bytes:
        """What comes next of it."""
        length = min(most, self.size - self.have)
        if isinstance(self.source, bytes):
            return self.source[self.have : self.have + length]
        with _reading(), self.source.open("rb") as file:
            file.seek(self.have)
            data = file.read(length)
        if len(data) < length:
            message = f"{self.source} became shorter while it was sent"
            raise RefusedError(message, fix="try again when nothing changes the files")
        return data


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"{error.filename} cannot be read: {error.strerror}"
        raise RefusedError(message, fix="change its mode, or try again when nothing changes the files") from None


def examine(body: dict[str, Any]) -> str:
    """The format of the model that the body of a registration names; refused here what would be refused there."""
    from fairway.registry.model import check_model_name, examine_source

    check_model_name(body["name"])
    _check_path(body["source"])
    facts = ModelFacts(format=body["format"], allow_pickle=body["allow_pickle"])
    with _reading():
        return examine_source(Path(body["source"]), facts).format


def send_model(body: dict[str, Any], *, namespace: str, told: Told | None = None) -> Steps[dict[str, Any]]:
    """Send the files of a registration; what its body says besides."""
    _check_path(body["source"])
    if body["from_run"]:
        # Before anything is sent: whether there is such a run.
        yield Call("GET", f"/v1/jobs/{wire.quote(body['from_run'])}", {"namespace": namespace})
    digest, _ = yield from _send(body["source"], namespace, told)
    return {"manifest": digest}


def send_dataset(body: dict[str, Any], *, namespace: str, told: Told | None = None) -> Steps[dict[str, Any]]:
    """The same for a version of a dataset."""
    from fairway.registry.dataset import check_dataset_name

    if body["reference"]:
        message = f"{body['path']} cannot be described by reference on a cluster, which does not read it"
        raise UsageError(message, fix="add it without --reference, or name the URI itself under data: in a job")
    check_dataset_name(body["name"])
    _check_path(body["path"])
    digest, is_file = yield from _send(body["path"], namespace, told)
    return {"manifest": digest, "is_file": is_file}


def _check_path(path: str) -> None:
    if "://" in path:
        message = f"{path} is not fetched by a cluster"
        raise UsageError(message, fix="fetch it to this machine, and register the files")


def _send(path: str, namespace: str, told: Told | None) -> Steps[tuple[str, bool]]:
    """Send what lies at a path; the digest of its manifest, and whether it is one file."""
    with _reading():
        manifest, is_file = manifest_of(path)
    top, spelled = Path(path), manifest.encoded()
    digest = hashlib.sha256(spelled).hexdigest()
    contents = {
        entry.sha256: _Content(entry.sha256, entry.size, top if is_file else top / entry.path)
        for entry in manifest.entries
        if entry.sha256
    }
    # Last: where the manifest came whole, so did all that it names.
    contents[digest] = _Content(digest, len(spelled), spelled)
    lacking = yield from _lacking(list(contents.values()), namespace)
    before = sum(content.have for content in lacking)
    total, left = sum(content.size for content in lacking) - before, deque(lacking)
    while left:
        left = deque((yield from _send_some(left, namespace)))
        if told is not None:
            told(sum(content.have for content in lacking) - before, total)
    return digest, is_file


def _lacking(contents: list[_Content], namespace: str) -> Steps[list[_Content]]:
    """Those that the cluster does not have whole."""
    found: list[_Content] = []
    for start in range(0, len(contents), MOST_PARTS):
        found += yield from _exchange([(one, b"") for one in contents[start : start + MOST_PARTS]], namespace, asking=True)
    return found


def _send_some(left: deque[_Content], namespace: str) -> Steps[Iterable[_Content]]:
    """Send a piece of what is left; what is left then."""
    parts: list[tuple[_Content, bytes]] = []
    room = PIECE
    while left and room > 0 and len(parts) < MOST_PARTS:
        content = left.popleft()
        data = content.read(room)
        room -= len(data)
        parts.append((content, data))
    unfinished = yield from _exchange(parts, namespace)
    return [*unfinished, *left]


def _exchange(parts: list[tuple[_Content, bytes]], namespace: str, *, asking: bool = False) -> Steps[list[_Content]]:
    """One request, tried again while the cluster is away for a moment; those of its contents that are not whole yet."""
    call = Call("POST", BLOBS, {"namespace": namespace}, _body(parts), kind=_BYTES)
    for left in reversed(range(TRIES)):
        try:
            answer = yield call
        except UnavailableError:
            if not left:
                raise
            # Waits until somebody answers.
            yield Call("GET", "/v1/health", {"namespace": namespace}, until=lambda _line: True)
            continue
        unfinished, moved = _taken_in(parts, json.loads(answer)["standing"])
        if moved or asking:
            return unfinished
    message = f"the content {parts[0][0].digest[:12]} could not be sent to the cluster"
    raise UnavailableError(message, fix="try again: what has come is not sent again")


def _taken_in(parts: list[tuple[_Content, bytes]], standing: list[dict[str, Any]]) -> tuple[list[_Content], bool]:
    unfinished, moved = [], False
    for (content, _), found in zip(parts, standing, strict=True):
        moved = moved or found["whole"] or (found["have"], found["checked"]) != (content.have, content.checked)
        content.have = content.size if found["whole"] else found["have"]
        content.checked = found["checked"]
        if not found["whole"]:
            unfinished.append(content)
    return unfinished, moved


def _body(parts: list[tuple[_Content, bytes]]) -> bytes:
    listed = [
        {"digest": content.digest, "size": content.size, "offset": content.have, "length": len(data)} for content, data in parts
    ]
    return b"".join([json.dumps({"parts": listed}, separators=(",", ":")).encode(), b"\n", *(data for _, data in parts)])
