"""What goes to a cluster with documents: their code, packed, and paths that mean the same there."""

from __future__ import annotations

import json
import os

from fairway.cli.session import say
from fairway.errors import RefusedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fairway.cli.session import Session

BLOB = "blob:"
"""Before the digest by which the cluster calls code that it keeps."""


def for_cluster(session: Session, body: dict[str, Any], *, folder: str, plan: bool) -> dict[str, Any]:
    """The body of a submit or an apply as a cluster takes it: documents that need nothing of this machine any more."""
    given = [body["document"]] if body.get("document") else rendered(session, body["documents"], body.get("file", ""))
    packed: dict[str, str] = {}
    found = [with_code(session, document, folder, packed, plan=plan) for document in given]
    kept = {key: value for key, value in body.items() if key not in ("document", "environment", "origin")}
    return {**kept, "documents": "\n---\n".join(json.dumps(document) for document in found)}


def rendered(session: Session, text: str, file: str) -> list[dict[str, Any]]:
    """The documents of a text in the Kubernetes spelling; their mistakes are told with their places."""
    import yaml

    asked = {"documents": text, "file": file, "to": "kubernetes"}
    return list(yaml.safe_load_all(session.call("POST", "/v1/render", body=asked).read()))


def with_code(session: Session, document: dict[str, Any], folder: str, packed: dict[str, str], *, plan: bool) -> dict[str, Any]:
    """One document with its code sent, unless it is only planned; `packed` knows what was sent already, by folder."""
    spec = dict(document.get("spec") or {})
    code = spec.get("code") or {}
    if code.get("path") and not code.get("inPlace") and not plan:
        place = os.path.realpath(os.path.join(folder, code["path"]))
        if place not in packed:
            packed[place] = _send_code(session, place)
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


def _send_code(session: Session, folder: str) -> str:
    """Pack a folder by the same rules as everywhere, and send it; what the cluster calls it."""
    archive = pack(folder)
    if len(archive) > 1 << 22:
        say(f"sending {len(archive) / 1e6:.0f} MB of code from {folder} ...")
    return str(json.loads(session.send_raw("/v1/code", archive))["code"])


def pack(folder: str) -> bytes:
    """The folder's files, less what its ignore files leave out, as a gzipped archive."""
    import io
    import tarfile
    from pathlib import Path

    from fairway.registry.scan import scan
    from fairway.registry.snapshot import LIMIT
    from fairway.units.quantity import show_bytes

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
