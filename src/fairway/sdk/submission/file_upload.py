"""Upload of local files to a cluster's registry: only missing content, in pieces, before the call that names it.

Written as generators that yield calls, as client methods are (`verb.py`). To continue an interrupted upload, call the same
method again; content that has arrived is not sent again.
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
from fairway.registry.external_source import manifest_of
from fairway.sdk.method.call import ApiCall, Steps
from fairway.sdk.transport import http
from fairway.state.model import ModelFacts

BLOBS = "/v1/blobs"
PIECE = 1 << 22
"""Bytes per request: small enough for proxies on the way, and for the memory of both sides."""
MOST_PARTS = 2000
TRIES = 4
"""Number of requests in a row without progress after which an upload fails."""
_BYTES = "application/octet-stream"

Told = Callable[[int, int], None]
"""Progress callback: called with the bytes that have arrived and the total."""


@dataclass(slots=True)
class _ContentUpload:
    """A content, and how much of it the cluster has."""

    digest: str
    size: int
    source: Path | bytes
    have: int = 0
    checked: int = 0

    def read(self, most: int) -> bytes:
        """Return the next bytes to send, at most `most`."""
        length = min(most, self.size - self.have)
        if isinstance(self.source, bytes):
            return self.source[self.have : self.have + length]
        with _reading(), self.source.open("rb") as file:
            file.seek(self.have)
            data = file.read(length)
        if len(data) < length:
            message = f"{self.source} became shorter while it was sent"
            raise RefusedError(message, fix="try again when no program changes the files")
        return data


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"{error.filename} cannot be read: {error.strerror}"
        raise RefusedError(message, fix="change its mode, or try again when no program changes the files") from None


def examine(body: dict[str, Any]) -> str:
    """Return the format of the model that a registration names; refuse here what the cluster would refuse."""
    from fairway.registry.model import check_model_name, examine_source

    check_model_name(body["name"])
    _check_path(body["source"])
    facts = ModelFacts(format=body["format"], allow_pickle=body["allow_pickle"])
    with _reading():
        return examine_source(Path(body["source"]), facts).format


def send_model(body: dict[str, Any], *, namespace: str, told: Told | None = None) -> Steps[dict[str, Any]]:
    """Upload the files of a registration; return the fields to add to its body."""
    _check_path(body["source"])
    if body["from_run"]:
        # Fails before anything is sent if the run does not exist.
        yield ApiCall("GET", f"/v1/jobs/{http.quote(body['from_run'])}", {"namespace": namespace})
    digest, _ = yield from _send(body["source"], namespace, told)
    return {"manifest": digest}


def send_dataset(body: dict[str, Any], *, namespace: str, told: Told | None = None) -> Steps[dict[str, Any]]:
    """Upload the files of a dataset version; return the fields to add to its body."""
    from fairway.registry.dataset import check_dataset_name

    if body["reference"]:
        message = f"{body['path']} cannot be added by reference on a cluster, which cannot read this path"
        raise UsageError(message, fix="add it without --reference, or give the URI under data: in a job")
    check_dataset_name(body["name"])
    _check_path(body["path"])
    digest, is_file = yield from _send(body["path"], namespace, told)
    return {"manifest": digest, "is_file": is_file}


def _check_path(path: str) -> None:
    if "://" in path:
        message = f"{path} is not fetched by a cluster"
        raise UsageError(message, fix="download it to this machine, and register the files")


def _send(path: str, namespace: str, told: Told | None) -> Steps[tuple[str, bool]]:
    """Upload the files at a path; return the digest of their manifest, and whether the path is a single file."""
    with _reading():
        manifest, is_file = manifest_of(path)
    root, manifest_bytes = Path(path), manifest.encoded()
    digest = hashlib.sha256(manifest_bytes).hexdigest()
    contents = {
        entry.sha256: _ContentUpload(entry.sha256, entry.size, root if is_file else root / entry.path)
        for entry in manifest.entries
        if entry.sha256
    }
    # The manifest is sent last: if it is complete on the cluster, so is all content that it names.
    contents[digest] = _ContentUpload(digest, len(manifest_bytes), manifest_bytes)
    lacking = yield from _lacking(list(contents.values()), namespace)
    present = sum(content.have for content in lacking)
    total, remaining = sum(content.size for content in lacking) - present, deque(lacking)
    while remaining:
        remaining = deque((yield from _send_some(remaining, namespace)))
        if told is not None:
            told(sum(content.have for content in lacking) - present, total)
    return digest, is_file


def _lacking(contents: list[_ContentUpload], namespace: str) -> Steps[list[_ContentUpload]]:
    """Return the contents that the cluster does not have completely."""
    lacking: list[_ContentUpload] = []
    for start in range(0, len(contents), MOST_PARTS):
        lacking += yield from _exchange(
            [(content, b"") for content in contents[start : start + MOST_PARTS]], namespace, asking=True
        )
    return lacking


def _send_some(left: deque[_ContentUpload], namespace: str) -> Steps[Iterable[_ContentUpload]]:
    """Send a piece of the remaining contents; return the contents that remain."""
    parts: list[tuple[_ContentUpload, bytes]] = []
    room = PIECE
    while left and room > 0 and len(parts) < MOST_PARTS:
        content = left.popleft()
        data = content.read(room)
        room -= len(data)
        parts.append((content, data))
    unfinished = yield from _exchange(parts, namespace)
    return [*unfinished, *left]


def _exchange(parts: list[tuple[_ContentUpload, bytes]], namespace: str, *, asking: bool = False) -> Steps[list[_ContentUpload]]:
    """Send one request, with retries while the cluster is unreachable; return its contents that are not complete yet."""
    call = ApiCall("POST", BLOBS, {"namespace": namespace}, _body(parts), kind=_BYTES)
    for tries_left in reversed(range(TRIES)):
        try:
            answer = yield call
        except UnavailableError:
            if not tries_left:
                raise
            # Waits until the cluster answers.
            yield ApiCall("GET", "/v1/health", {"namespace": namespace}, until=lambda _line: True)
            continue
        unfinished, moved = _taken_in(parts, json.loads(answer)["standing"])
        if moved or asking:
            return unfinished
    message = f"the content {parts[0][0].digest[:12]} could not be sent to the cluster"
    raise UnavailableError(message, fix="try again: parts that have arrived are not sent again")


def _taken_in(parts: list[tuple[_ContentUpload, bytes]], standing: list[dict[str, Any]]) -> tuple[list[_ContentUpload], bool]:
    unfinished, moved = [], False
    for (content, _), state in zip(parts, standing, strict=True):
        moved = moved or state["whole"] or (state["have"], state["checked"]) != (content.have, content.checked)
        content.have = content.size if state["whole"] else state["have"]
        content.checked = state["checked"]
        if not state["whole"]:
            unfinished.append(content)
    return unfinished, moved


def _body(parts: list[tuple[_ContentUpload, bytes]]) -> bytes:
    part_list = [
        {"digest": content.digest, "size": content.size, "offset": content.have, "length": len(data)} for content, data in parts
    ]
    return b"".join([json.dumps({"parts": part_list}, separators=(",", ":")).encode(), b"\n", *(data for _, data in parts)])
