"""Preparation of documents for a cluster: their code is packed and uploaded, and paths are made absolute.

Written as generators that yield calls, as client methods are (`verb.py`).
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
from fairway.registry.folder_scan import scan
from fairway.registry.snapshot import LIMIT
from fairway.sdk.method.call import ApiCall, Steps
from fairway.units.quantity import show_bytes

CODE = "/v1/code"
_BYTES = "application/octet-stream"


def for_cluster(body: dict[str, Any], *, folder: str, namespace: str, plan: bool = False) -> Steps[dict[str, Any]]:
    """Return the body of a submit or an apply for a cluster: its documents no longer depend on this machine."""
    documents = [body["document"]] if body.get("document") else []
    if not documents:
        render_request = {"documents": body["documents"], "file": body.get("file", ""), "to": "kubernetes"}
        # Renders the documents in the Kubernetes spelling; mistakes are reported with their positions.
        rendered = yield ApiCall("POST", "/v1/render", {"namespace": namespace}, json.dumps(render_request).encode())
        documents = list(yaml.safe_load_all(rendered))
    packed: dict[str, str] = {}
    prepared = []
    for document in documents:
        prepared.append((yield from with_code(document, folder=folder, namespace=namespace, packed=packed, plan=plan)))
    other_fields = {key: value for key, value in body.items() if key not in ("document", "environment", "origin")}
    return {**other_fields, "documents": "\n---\n".join(json.dumps(document) for document in prepared)}


def with_code(
    document: dict[str, Any], *, folder: str, namespace: str, packed: dict[str, str], plan: bool = False
) -> Steps[dict[str, Any]]:
    """Upload the code of a document, unless `plan`, and return the document. `packed` holds uploads so far, by folder."""
    spec = dict(document.get("spec") or {})
    code = spec.get("code") or {}
    if code.get("path") and not code.get("inPlace") and not plan:
        code_folder = os.path.realpath(os.path.join(folder, code["path"]))
        if code_folder not in packed:
            upload = yield ApiCall("POST", CODE, {"namespace": namespace}, pack(code_folder), kind=_BYTES)
            packed[code_folder] = str(json.loads(upload)["code"])
        spec["code"] = {**code, "path": packed[code_folder]}
    if spec.get("data"):
        spec["data"] = {name: _absolute(value, folder) for name, value in spec["data"].items()}
    return {**document, "spec": spec} if spec else document


def _absolute(value: str, folder: str) -> str:
    """Return an absolute path, which nodes may have too; URIs, versions and references stay unchanged."""
    if "://" in value or os.path.isabs(value):
        return value
    path = os.path.join(folder, value)
    return os.path.realpath(path) if value.startswith(".") or ("@" not in value and os.path.exists(path)) else value


def pack(folder: str) -> bytes:
    """Return the folder's files, without those that its ignore files exclude, as a gzipped archive."""
    if not os.path.isdir(folder):
        message = f"there is no folder of code {folder}"
        raise RefusedError(message, fix="give an existing folder under code:, relative to the document")
    tree = scan(Path(folder), ignoring=True)
    if tree.size > LIMIT:
        largest = ", ".join(f"{path} ({show_bytes(size)})" for path, size in tree.largest())
        message = (
            f"{folder} holds {show_bytes(tree.size)}, more than the limit of {show_bytes(LIMIT)} for code; the largest: {largest}"
        )
        raise RefusedError(message, fix="exclude data with .fairwayignore and declare it under data:")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=6) as archive:
        for path in [*tree.files, *(entry.path for entry in tree.others)]:
            archive.add(os.path.join(folder, path), path, recursive=False, filter=_nobodys)
    return buffer.getvalue()


def _nobodys(member: Any) -> Any:
    """Clear the owner: local users mean nothing on the cluster."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
