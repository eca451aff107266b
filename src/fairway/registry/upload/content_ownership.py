"""Records which namespaces and users have had a content: knowing its digest gives no right to it.

A namespace holds the content of its versions. Code belongs to the namespace that it was sent to and to the user who sent it:
`codes/OWNER/DIGEST` is an empty file for each.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

from fairway.app.upload import Held
from fairway.errors import BugError, NotFoundError, RefusedError
from fairway.registry import numbered_record, snapshot
from fairway.registry.blob import BlobStore
from fairway.registry.registry_namespace import DATASETS, MODELS, RegistryNamespaces

FOLDER = "codes"
_MOST = 200_000
"""Limit on the contents remembered over all manifests."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


def is_digest(text: str) -> bool:
    """Return whether a text has the form of a digest."""
    return _DIGEST.fullmatch(text) is not None


def namespace_owner(namespace: str) -> str:
    """Return the name of a namespace as an owner of code."""
    return f"namespace:{namespace}"


def user_owner(user: str) -> str:
    """Return the name of a user as an owner of code."""
    return f"user:{user}"


class ContentOwnership:
    """Records which namespace or user has had which content. Content that was not sent or read is never reported as held."""

    def __init__(self, root: Path, blobs: BlobStore, namespaces: RegistryNamespaces) -> None:
        self._root = root
        self._blobs = blobs
        self._namespaces = namespaces
        self._contents: dict[str, frozenset[str]] = {}
        """The contents that each manifest names. Manifests never change; beyond the limit they are read again."""

    def held_in(self, namespace: str) -> Held:
        """Return a function that checks whether a version of the namespace holds a content, or has it as its manifest."""
        digests: set[str] = set()

        def held(digest: str) -> bool:
            if not digests:
                manifests = self._manifests(namespace)
                digests.update(manifests, *(self._named_by(manifest) for manifest in manifests))
            return digest in digests

        return held

    def note_code(self, owners: Iterable[str], digest: str) -> None:
        """Record that these owners have had a code."""
        for owner in owners:
            numbered_record.put(self._place(owner, digest), b"")

    def has_code(self, owners: Iterable[str], digest: str) -> bool:
        """Return whether one of these owners has had a code."""
        return is_digest(digest) and any(self._place(owner, digest).exists() for owner in owners)

    def _place(self, owner: str, digest: str) -> Path:
        if not is_digest(digest):
            message = f"{digest[:100]!r} is not a SHA-256 digest"
            raise RefusedError(message, fix="send the code again")
        return self._root / FOLDER / hashlib.sha256(owner.encode("utf-8", "surrogateescape")).hexdigest()[:32] / digest

    def _manifests(self, namespace: str) -> set[str]:
        manifests = set()
        for kind in (MODELS, DATASETS):
            for name in self._namespaces.names(kind, namespace):
                folder = self._namespaces.folder(kind, name)
                for number in numbered_record.numbers(folder):
                    record = json.loads(numbered_record.record(folder, number).read_bytes())
                    if not record.get("reference"):
                        # A reference only describes content that lies elsewhere.
                        manifests.add(str(record["digest"]))
        return manifests

    def _named_by(self, manifest: str) -> frozenset[str]:
        if manifest not in self._contents:
            try:
                entries = snapshot.load(manifest, self._blobs).entries
            except (NotFoundError, RefusedError, BugError):
                return frozenset()  # Missing or damaged.
            digests = frozenset(entry.sha256 for entry in entries if entry.sha256)
            if sum(map(len, self._contents.values())) + len(digests) > _MOST:
                self._contents.clear()
            self._contents[manifest] = digests
        return self._contents[manifest]
