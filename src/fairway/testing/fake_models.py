"""A registry of models that remembers until the process ends, for tests of what stands on it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from fairway.app.tracking_ports import Registration
from fairway.errors import NotFoundError, RefusedError
from fairway.state.model import ModelVersion


class FakeModels:
    """The `ModelKeeper` port: versions are the folders that were registered, as they lie there."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now
        self._versions: dict[str, list[ModelVersion]] = {}
        self._folders: dict[tuple[str, int], Path] = {}

    async def register(self, name: str, folder: str, said: Registration) -> ModelVersion:
        """Keep a folder as the next version. Pickles are refused as everywhere."""
        files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        if any(path.suffix == ".pkl" for path in files) and not said.allow_pickle:
            message = f"{folder} holds a pickle, which runs code when it is loaded"
            raise RefusedError(message, fix="allow it with --allow-pickle")
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
        size = sum(path.stat().st_size for path in files)
        known = self._versions.setdefault(name, [])
        version = ModelVersion(
            name,
            len(known) + 1,
            digest,
            "onnx",
            len(files),
            size,
            self.now,
            metrics=said.metrics,
            lineage=said.lineage,
            tags=said.tags,
        )
        known.append(version)
        self._folders[name, version.version] = Path(folder)
        return version

    async def find(self, reference: str) -> ModelVersion:
        """The version of that number or alias."""
        name, _, asked = reference.partition("@")
        for version in reversed(self._versions.get(name, [])):
            if asked in ("", str(version.version), *version.aliases):
                return version
        message = f"model {name} has no version or alias {asked!r}"
        raise NotFoundError(message)

    async def versions(self, name: str = "") -> list[ModelVersion]:
        """Every version of a model, or of all of them, oldest first."""
        return [version for known in sorted(self._versions) if name in ("", known) for version in self._versions[known]]

    async def set_alias(self, version: ModelVersion, alias: str) -> None:
        """Let the alias mean this version, and no other."""
        self._versions[version.name] = [
            replace(
                each,
                aliases=tuple(sorted({*each.aliases, alias} if each.version == version.version else {*each.aliases} - {alias})),
            )
            for each in self._versions[version.name]
        ]

    async def drop_alias(self, name: str, alias: str) -> None:
        """Take an alias away."""
        found = await self.find(f"{name}@{alias}")
        known = self._versions[name]
        known[found.version - 1] = replace(found, aliases=tuple(each for each in found.aliases if each != alias))

    async def folder(self, version: ModelVersion) -> Path:
        """The folder that was registered."""
        return self._folders[version.name, version.version]
