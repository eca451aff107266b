"""What goes to a cluster with documents: their code, packed, and paths that mean the same there.

Written as verbs are: generators that say what to ask, for whoever asks it (`verb.py`).
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import yaml

from fairway.errors import RefusedError
from fairway.registry.scan import scan
from fairway.registry.snapshot import LIMIT
from fairway.sdk.verb import Call, Steps
from fairway.units.quantity import show_bytes

CODE = "/v1/code"
_BYTES = "application/octet-stream"


def for_cluster(body: dict[str, Any], *, folder: str, namespace: str, plan: bool = False) -> Steps[dict[str, Any]]:
    """The body of a submit or an apply as a cluster takes it: documents that need nothing of this machine any more."""
    given = [body["document"]] if body.get("document") else []
    if not given:
        asked = {"documents": body["documents"], "file": body.get("file", ""), "to": "kubernetes"}
        # The documents in the Kubernetes spelling; their mistakes are told with their places.
        rendered = yield Call("POST", "/v1/render", {"namespace": namespace}, json.dumps(asked).encode())
        given = list(yaml.safe_load_all(rendered))
    packed: dict[str, str] = {}
    found = []
    for document in given:
        found.append((yield from with_code(document, folder=folder, namespace=namespace, packed=packed, plan=plan)))
    kept = {key: value for key, value in body.items() if key not in ("document", "environment", "origin")}
    return {**kept, "documents": "\n---\n".join(json.dumps(document) for document in found)}


def with_code(
    document: dict[str, Any], *, folder: str, namespace: str, packed: dict[str, str], plan: bool = False
) -> Steps[dict[str, Any]]:
    """One document with its code sent, unless it is only planned; `packed` knows what was sent already, by folder."""
    spec = dict(document.get("spec") or {})
    code = spec.get("code") or {}
    if code.get("path") and not code.get("inPlace") and not plan:
        place = os.path.realpath(os.path.join(folder, code["path"]))
        if place not in packed:
            kept = yield Call("POST", CODE, {"namespace": namespace}, pack(place), kind=_BYTES)
            packed[place] = str(json.loads(kept)["code"])
        spec["code"] = {**code, "path": packed[place]}
    if spec.get("data"):
        spec["data"] = {name: _absolute(value, folder) for name, value in spec["data"].items()}
    return {**document, "spec": spec} if spec else document


def _absolute(value: str, folder: str) -> str:
    """A path as nodes may have it too; versions and references stay as they are."""
    if "://" in value or os.path.isabs(value):
        return value
    place = os.path.join(folder, value)
    return os.path.realpath(place) if value.startswith(".") or ("@" not in value and os.path.exists(place)) else value


def pack(folder: str) -> bytes:
    """The folder's files, less what its ignore files leave out, as a gzipped archive."""
    if not os.path.isdir(folder):
        message = f"there is no folder of code {folder}"
        raise RefusedError(message, fix="name one under code:, relative to the document")
    found = scan(Path(folder), ignoring=True)
    if found.size > LIMIT:
        largest = ", ".join(f"{path} ({show_bytes(size)})" for path, size in found.largest())
        message = (
            f"{folder} holds {show_bytes(found.size)}, more than the {show_bytes(LIMIT)} that code may; the largest: {largest}"
        )
        raise RefusedError(message, fix="leave data out with .fairwayignore and name it under data:")
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", compresslevel=6) as archive:
        for path in [*found.files, *(entry.path for entry in found.others)]:
            archive.add(os.path.join(folder, path), path, recursive=False, filter=_nobodys)
    return made.getvalue()


def _nobodys(member: Any) -> Any:
    """Whose the files are here says nothing there."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
