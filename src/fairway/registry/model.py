"""Models: numbered versions of what jobs produced, and the aliases that users give them."""

from __future__ import annotations

import builtins
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from fairway.app.system import crash_point
from fairway.app.upload import UploadedContent
from fairway.app.verification_progress import VerificationProgress
from fairway.errors import BugError, ConflictError, NotFoundError, RefusedError, UsageError
from fairway.registry import external_source, numbered_record, snapshot
from fairway.registry.blob import BlobStore
from fairway.registry.content_archive import packed
from fairway.registry.content_verification import naming, verify
from fairway.registry.folder_scan import scan
from fairway.registry.formats.model_examination import ModelExamination, examine
from fairway.registry.manifest import FolderManifest, ManifestEntry
from fairway.registry.registry_namespace import DATASETS, MODELS, RegistryNamespaces, in_words, split
from fairway.registry.upload import content_upload
from fairway.state.content_check import ContentVerification
from fairway.state.model import LATEST, ModelFacts, ModelFile, ModelVersion
from fairway.units import suggestion
from fairway.units.names import check_name, is_alias, model_name


class ModelRegistry:
    """The models of a home: `models/NAME/N.json`, aliases beside them, content in the blobs. Implements `ModelStore`."""

    def __init__(self, root: Path, blobs: BlobStore, namespaces: RegistryNamespaces | None = None) -> None:
        self._namespaces = namespaces or RegistryNamespaces(root)
        self._expected = root / "expected-models"
        self._fetched = root / "fetched"
        self._freeable = root / numbered_record.FREEABLE
        self._blobs = blobs
        self._known: dict[tuple[str, int], ModelVersion] = {}
        """Cache of version records, which never change."""

    def register(self, name: str, path: str | UploadedContent, facts: ModelFacts, now: float) -> ModelVersion:
        """Register a folder or a file as the next version; with the content and facts of the newest version, return that one."""
        self._check(name)
        if isinstance(path, UploadedContent):
            with content_upload.closing(path, self._blobs):
                manifest, paths = content_upload.load(path, self._blobs)
                # Examine it before any of it is kept.
                examined = examine(paths, asked=facts.format, allow_pickle=facts.allow_pickle, made_here=facts.made_here)
                content_upload.adopt(path, manifest, self._blobs)
                return self._numbered(name, manifest, path.digest, examined, facts, now)
        with external_source.fetched(path, self._fetched) as source:
            examine_source(source, facts)
            with self._blobs.writing():
                manifest, digest = self._taken(source)
                # Examined again as it is kept: the source may have changed in between.
                return self._numbered(name, manifest, digest, self._examined(manifest, facts), facts, now)

    def _numbered(
        self, name: str, manifest: FolderManifest, digest: str, found: ModelExamination, facts: ModelFacts, now: float
    ) -> ModelVersion:
        files = sum(1 for entry in manifest.entries if entry.sha256)
        version = ModelVersion(
            name=name,
            version=0,
            digest=digest,
            format=found.format,
            files=files,
            size=manifest.size,
            created=now,
            signature=found.signature,
            metrics={**found.metrics, **facts.metrics},
            lineage=facts.lineage,
            tags=dict(facts.tags),
            title=facts.title,
            best=dict(facts.best),
        )
        folder = self._folder(name)
        with numbered_record.locked(folder):
            newest = self._newest(name)
            if newest is not None and not facts.anew and version == replace(newest, version=0, created=now):
                return self._with_marks(newest)
            version = replace(version, version=numbered_record.next_number(folder))
            numbered_record.claim(folder, version.version, _encoded(version))
        return version

    def examine(self, path: str, facts: ModelFacts) -> str:
        """Return the format that a registration would find, without keeping anything; raises the same errors."""
        with external_source.fetched(path, self._fetched) as source:
            return examine_source(source, facts).format

    def get(self, reference: str) -> ModelVersion:
        """Return the version that `mnist@3`, `mnist@champion`, `mnist@latest` or `mnist` names."""
        name, _, selector = reference.partition("@")
        self._check(name)
        versions = self.list(name)
        if not versions:
            raise self._no_model(name)
        if selector in ("", LATEST) and not reference.endswith("@"):
            return versions[-1]
        for version in versions:
            if selector == str(version.version) or selector in version.aliases:
                return version
        aliases = sorted(alias for version in versions for alias in version.aliases)
        aliases_text = f" and the aliases {', '.join(aliases)}" if aliases else ""
        message = f"model {name} has no version or alias {selector!r}; it has {_ranges(versions)}{aliases_text}"
        fix = suggestion.did_you_mean(selector, aliases) or f"the newest is {versions[-1]}"
        raise NotFoundError(message, fix=fix)

    def list(self, name: str = "") -> builtins.list[ModelVersion]:
        """Return every version of a model, oldest first; without a name those of all models, ordered by name."""
        if name:
            return [self._with_marks(version) for version in self._records(self._check(name))]
        return [self._with_marks(version) for model in self.names() for version in self._records(model)]

    def names(self, namespace: str = "") -> builtins.list[str]:
        """Return the models that have versions, of one namespace or of all."""
        return self._namespaces.names(MODELS, namespace)

    def own(self, reference: str, namespace: str) -> str:
        """Return the absolute name of a bare name in a namespace; names of other namespaces are refused."""
        return self._namespaces.own(reference, namespace)

    def meant(self, reference: str, namespace: str) -> str:
        """Return the absolute name that a name in an object of a namespace refers to."""
        return self._namespaces.meant(MODELS, reference, namespace)

    def relative(self, reference: str, namespace: str) -> str:
        """Return the shortest name for an absolute one in an object of a namespace."""
        return self._namespaces.relative(MODELS, reference, namespace)

    def files(self, version: ModelVersion) -> tuple[ModelFile, ...]:
        """Return the files of a version, ordered by path."""
        with naming(version, "model"):
            entries = snapshot.load(version.digest, self._blobs).entries
        return tuple(ModelFile(entry.path, entry.size, entry.sha256) for entry in entries if entry.sha256)

    def promote(self, version: ModelVersion, alias: str) -> int | None:
        """Point the alias to this version; return the number of the version that it pointed to before."""
        _check_alias(alias)
        with numbered_record.locked(self._folder(version.name)):
            self._check_there(version)
            before = self._aliases(version.name).get(alias)
            if before != version.version:
                numbered_record.put(self._folder(version.name) / "aliases" / alias, f"{version.version}\n".encode())
        return before

    def demote(self, name: str, alias: str) -> int:
        """Remove an alias; return the number of the version that it pointed to."""
        self._check(name)
        with numbered_record.locked(self._folder(name)):
            aliases = self._aliases(name)
            if alias not in aliases:
                message = f"model {name} has no alias {alias!r}; it has {', '.join(sorted(aliases)) or 'none'}"
                raise NotFoundError(message, fix=suggestion.did_you_mean(alias, aliases) or "`fairway model list` shows them")
            with crash_point.reach("registry.remove"):
                (self._folder(name) / "aliases" / alias).unlink()
        return aliases[alias]

    def tag(self, version: ModelVersion, tags: Mapping[str, str | None]) -> ModelVersion:
        """Set tags of a version; a value of None removes a tag."""
        folder = self._folder(version.name)
        with numbered_record.locked(folder):
            self._check_there(version)
            merged = {**self._with_marks(version).tags, **tags}
            kept = {key: value for key, value in merged.items() if value is not None}
            numbered_record.put(folder / "tags" / f"{version.version}.json", json.dumps(kept).encode())
        return self._with_marks(version)

    def rename(self, name: str, new: str, title: str) -> None:
        """Move all versions of a model, with tags and aliases, to a name that has none; `title` is its name for MLflow clients.

        The new name gets all of them in one step. A crash before the old name is removed leaves both.
        """
        old, target = self._folder(self._check(name)), self._folder(self._check(new))
        with self._blobs.writing(), numbered_record.locked(old):
            records = self._records(name)
            if not records:
                raise self._no_model(name)
            if numbered_record.numbers(target):
                message = f"there is a model {split(new)[1]} already"
                raise ConflictError(message, fix="choose another name")
            renamed = {record.version: _encoded(replace(record, name=new, title=title)) for record in records}
            numbered_record.move(old, target, renamed)
            for version in records:
                self._forget_folder(version)
                self._known.pop((name, version.version), None)

    def delete(self, version: ModelVersion) -> None:
        """Delete a version. Its number is not used again."""
        folder = self._folder(version.name)
        # Not while content is freed: a note that is taken for an older one would be lost.
        with self._blobs.writing(), numbered_record.locked(folder):
            self._check_there(version)
            aliases = self._with_marks(version).aliases
            if aliases:
                message = f"{version} is {' and '.join(aliases)}"
                raise ConflictError(message, fix=f"first: fairway model promote {version.name}@OTHER {aliases[0]}")
            self._forget_folder(version)
            # The note comes first: content with a note that a version still names is not freed.
            numbered_record.put(self._freeable / version.digest, b"")
            numbered_record.take_away(folder, version.version)

    def freeable(self) -> bool:
        """Return whether there are deleted versions whose content was not freed yet."""
        return bool(self._noted())

    def free(self, others: Iterable[str]) -> int | None:
        """Remove content that only deleted versions named; `others` are further manifests that are still in use.

        Returns the number of bytes freed; None if another process is writing, so that nothing may be removed.
        """
        with self._blobs.alone() as alone:
            if not alone:
                return None
            noted = self._noted()
            kept = {version.digest for version in self.list()}
            kept.update(digest for _, folder in self._namespaces.parents(DATASETS) for digest in numbered_record.digests(folder))
            needed = self._contents({*others, *kept, *self._blobs.expected()})
            freed = self._blobs.remove(self._contents(noted) - needed)
            for digest in noted:
                with crash_point.reach("registry.remove"):
                    (self._freeable / digest).unlink(missing_ok=True)
            return freed

    def _noted(self) -> builtins.list[str]:
        try:
            return [name for name in os.listdir(self._freeable) if not name.startswith(".")]
        except FileNotFoundError:
            return []

    def _contents(self, manifests: Iterable[str]) -> set[str]:
        """Return these manifests and everything that they name. A missing manifest names nothing."""
        digests = set(manifests)
        for digest in list(digests):
            try:
                digests.update(entry.sha256 for entry in snapshot.load(digest, self._blobs).entries if entry.sha256)
            except (NotFoundError, RefusedError, BugError):
                # Missing, damaged, or no digest at all: the code of a run on a cluster may lie in a ConfigMap.
                continue
        return digests

    def pull(self, version: ModelVersion, target: str) -> None:
        """Copy the version's files to a new folder, which appears only when it is complete."""
        path = Path(target)
        if path.is_dir() and not path.is_symlink() and not os.listdir(path):
            path.rmdir()
        if os.path.lexists(path):
            message = f"{path} exists already"
            raise RefusedError(message, fix="name a folder that does not exist or is empty")
        with naming(version, "model"):
            snapshot.materialise(snapshot.load(version.digest, self._blobs), self._blobs, path)

    def folder(self, version: ModelVersion) -> Path:
        """Return a read-only folder with the version's files, to serve from; it is created on first use."""
        folder = self._namespaces.folder("model-files", version.name) / str(version.version)
        with naming(version, "model"):
            snapshot.materialise(snapshot.load(version.digest, self._blobs), self._blobs, folder, linked=True)
        return folder

    def packed(self, version: ModelVersion) -> Iterator[bytes]:
        """Return the version's files as a tar archive, in pieces."""
        with naming(version, "model"):
            return packed(version.digest, self._blobs)

    def verify(self, versions: Sequence[ModelVersion], course: VerificationProgress) -> ContentVerification:
        """Compare all content of the versions with its digests."""
        return verify({str(version): version.digest for version in versions}, self._blobs, course)

    def of_run(self, name: str, run: str) -> ModelVersion | None:
        """Return the version of a model that a run produced; None if there is none."""
        versions = [version for version in self._records(self._check(name)) if version.lineage.run == run]
        return self._with_marks(versions[-1]) if versions else None

    def expect(self, run: str) -> None:
        """Record that a run may produce a model, until `settle`."""
        numbered_record.put(self._expected / run.replace("/", "+"), b"")

    def expected(self) -> builtins.list[str]:
        """Return the runs that may produce a model."""
        try:
            listed = sorted(os.listdir(self._expected))
        except FileNotFoundError:
            return []
        return [name.replace("+", "/") for name in listed if not name.startswith(".")]

    def settle(self, run: str) -> None:
        """Forget the run: anything that it had to register is registered."""
        with crash_point.reach("registry.remove"):
            (self._expected / run.replace("/", "+")).unlink(missing_ok=True)

    def _taken(self, source: Path) -> tuple[FolderManifest, str]:
        if source.is_dir():
            taken = snapshot.take(source, self._blobs, ignoring=False, limit=None, remembering=False, recorded=True)
            return taken.manifest, taken.digest
        digest, size = self._blobs.put_files([source])[source]
        manifest = FolderManifest((ManifestEntry(source.name, 0o644, size, digest),))
        return manifest, self._blobs.put(manifest.encoded())

    def _examined(self, manifest: FolderManifest, facts: ModelFacts) -> ModelExamination:
        files = {entry.path: self._blobs.path(entry.sha256) for entry in manifest.entries if entry.sha256}
        return examine(files, asked=facts.format, allow_pickle=facts.allow_pickle, made_here=facts.made_here)

    def _records(self, name: str) -> builtins.list[ModelVersion]:
        folder = self._folder(name)
        versions = []
        for number in numbered_record.numbers(folder):
            version = self._known.get((name, number)) or _decoded(numbered_record.record(folder, number))
            self._known[name, number] = version
            versions.append(version)
        return versions

    def _newest(self, name: str) -> ModelVersion | None:
        records = self._records(name)
        return records[-1] if records else None

    def _with_marks(self, version: ModelVersion) -> ModelVersion:
        """Return the version with its mutable parts: aliases and tags."""
        aliases = tuple(alias for alias, number in self._aliases(version.name).items() if number == version.version)
        try:
            tags = json.loads((self._folder(version.name) / "tags" / f"{version.version}.json").read_bytes())
        except FileNotFoundError:
            tags = version.tags
        return replace(version, aliases=aliases, tags=tags) if aliases or tags != version.tags else version

    def _aliases(self, name: str) -> dict[str, int]:
        folder = self._folder(name) / "aliases"
        try:
            names = sorted(alias for alias in os.listdir(folder) if not alias.startswith("."))
        except FileNotFoundError:
            return {}
        return {alias: int((folder / alias).read_text()) for alias in names}

    def _check_there(self, version: ModelVersion) -> None:
        if version.version not in numbered_record.numbers(self._folder(version.name)):
            message = f"{version} is gone"
            raise NotFoundError(message, fix=f"fairway model list {version.name}")

    def _forget_folder(self, version: ModelVersion) -> None:
        """Remove the laid-out folder in one step, so that a crash leaves no partial folder under the version's name."""
        folder = self._namespaces.folder("model-files", version.name) / str(version.version)
        if folder.is_dir():
            temporary = folder.with_name(f".{version.version}-{secrets.token_hex(6)}")
            with crash_point.reach("registry.rename"):
                os.rename(folder, temporary)
            shutil.rmtree(temporary, ignore_errors=True)

    def _no_model(self, name: str) -> NotFoundError:
        namespace, bare = split(name)
        models = [split(model)[1] for model in self.names(namespace)]
        message = f"there is no model {bare} {in_words(namespace)} (known: {', '.join(models) or 'none'})"
        fix = suggestion.did_you_mean(bare, models) or f"register one with: fairway model register {bare} PATH"
        return NotFoundError(message, fix=fix)

    def _folder(self, name: str) -> Path:
        return self._namespaces.folder(MODELS, name)

    def _check(self, name: str) -> str:
        try:
            return self._namespaces.check("model", name)
        except UsageError:
            self._refuse_other_name(name)
            raise

    def _refuse_other_name(self, name: str) -> None:
        """Raise an error with the model's own name if `name` is what MLflow clients call an existing model."""
        _, bare = split(name)
        own = self._namespaces.check("model", name.removesuffix(bare) + model_name(bare))
        if numbered_record.numbers(self._folder(own)):
            message = f"model {bare!r} is the name that MLflow clients use for {split(own)[1]}"
            raise UsageError(message, fix=f"use {split(own)[1]}")


def examine_source(source: Path, facts: ModelFacts) -> ModelExamination:
    """Examine the model at a path without keeping anything; raises the errors of a registration."""
    if source.is_dir():
        files = {name: source / name for name in scan(source, ignoring=False).files}
    elif source.is_file():
        files = {source.name: source}
    else:
        message = f"there is no file or folder {source}"
        raise NotFoundError(message, fix="give the path of an existing file or folder")
    if not files:
        message = f"{source} contains no files"
        raise RefusedError(message, fix="name a folder with a model in it")
    return examine(files, asked=facts.format, allow_pickle=facts.allow_pickle, made_here=facts.made_here, kept=False)


def check_model_name(name: str) -> str:
    """Return the name, or raise `UsageError`; no other text ever becomes part of a path."""
    try:
        return check_name(name)
    except ValueError as error:
        message = f"model {name!r} {error}"
        raise UsageError(message) from None


def _check_alias(alias: str) -> None:
    if alias.lower() == LATEST:
        message = f"{LATEST} always means the newest version"
        raise UsageError(message, fix="choose another alias, for example champion")
    if not is_alias(alias):
        rule = "letters, digits, dashes and underscores, not beginning with a digit or a dash, and not v and a number"
        message = f"alias {alias[:80]!r} is not a valid alias: {rule}"
        raise UsageError(message, fix="choose another alias, for example champion")


def _ranges(versions: builtins.list[ModelVersion]) -> str:
    numbers = [str(version.version) for version in versions]
    return ", ".join(numbers if len(numbers) < 10 else [*numbers[:3], "...", *numbers[-3:]])


def _encoded(version: ModelVersion) -> bytes:
    return json.dumps(msgspec.to_builtins(version)).encode()


def _decoded(path: Path) -> ModelVersion:
    return msgspec.convert(json.loads(path.read_bytes()), ModelVersion)
