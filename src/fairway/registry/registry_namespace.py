"""Names of models and datasets in namespaces, and the folders of their versions.

`mnist` is the model of the namespace `default`, `team-a/mnist` that of `team-a`. A registry of one machine has only the
namespace `default`. Its files lie in `KIND/NAME`, those of other namespaces in `namespaces/NAMESPACE/KIND/NAME`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fairway.errors import UsageError
from fairway.registry import numbered_record
from fairway.units.names import check_name

DEFAULT = "default"
MODELS, DATASETS = "models", "datasets"
FOLDER = "namespaces"

_EARLIER = "earlier.json"
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SIMPLE = re.compile(r"[a-z0-9-]+")

Used = Mapping[str, Mapping[str, Sequence[str]]]
"""By kind and name: the namespaces whose objects used that name before registries had namespaces."""


class RegistryNamespaces:
    """Resolves names of models and datasets.

    Guarantees:
    1. No name leads out of the folders of its namespace, whatever its text is.
    2. The namespace `default` has the names and the folders of a registry without namespaces.
    3. Names that objects of other namespaces used before there were namespaces keep their meaning: `keep_earlier`.
    """

    def __init__(self, root: Path, *, several: bool = False) -> None:
        self._root = root
        self._several = several
        self._earlier: Used | None = None

    # Names

    def own(self, reference: str, namespace: str) -> str:
        """Return the absolute name of a bare name in a namespace: `team-a/mnist@3`.

        Raises `UsageError` for a name with a namespace.
        """
        if not self._several:
            return reference
        if "/" in reference:
            message = f"{reference!r} names a namespace, but names here belong to the namespace {namespace}"
            raise UsageError(message, fix="leave the namespace out, and choose it with -n")
        return self._joined(namespace, reference)

    def meant(self, kind: str, reference: str, namespace: str) -> str:
        """Return the absolute name for a name in an object of a namespace.

        `mnist` refers to the namespace's own model, `team-b/mnist` to that of another namespace.
        """
        if "/" in reference:
            return self._other(reference)
        if not self._several:
            return reference
        if self.used_earlier(kind, reference.partition("@")[0], namespace) and not self._has(kind, reference, namespace):
            return reference
        return self._joined(namespace, reference)

    def relative(self, kind: str, reference: str, namespace: str) -> str:
        """Return the shortest name for an absolute one in an object of a namespace."""
        owner, bare = split(reference)
        if not self._several or self.meant(kind, bare, namespace) == reference:
            return bare
        return f"{owner}/{bare}"

    def check(self, kind: str, name: str) -> str:
        """Return the absolute name, or raise `UsageError`."""
        namespace, bare = split(name) if self._several else (DEFAULT, name)
        try:
            check_name(bare)
        except ValueError as error:
            message = f"{kind} {bare!r} {error}"
            raise UsageError(message) from None
        if not _NAMESPACE.fullmatch(namespace) or name != self._joined(namespace, bare):
            message = f"{kind} {name[:200]!r} is not in a valid namespace"
            raise UsageError(message, fix="write NAMESPACE/NAME")
        return name

    # Folders

    def folder(self, kind: str, name: str) -> Path:
        """Return the folder of an absolute name that was checked."""
        namespace, bare = split(name)
        return self._parent(kind, namespace) / bare

    def parents(self, kind: str) -> Iterator[tuple[str, Path]]:
        """Yield each namespace that may have something of a kind, with the folder for it."""
        yield DEFAULT, self._parent(kind, DEFAULT)
        if self._several and (self._root / FOLDER).is_dir():
            for path in sorted((self._root / FOLDER).iterdir()):
                if path.is_dir() and _NAMESPACE.fullmatch(path.name):
                    yield path.name, path / kind

    def names(self, kind: str, namespace: str = "") -> list[str]:
        """Return the absolute names that have versions, of one namespace or of all."""
        absolute = []
        for owner, parent in self.parents(kind):
            if namespace in ("", owner) and parent.is_dir():
                listed = sorted(path.name for path in parent.iterdir() if not path.name.startswith("."))
                absolute += [self._joined(owner, name) for name in listed if numbered_record.numbers(parent / name)]
        return absolute

    # Names from before there were namespaces

    def knows_earlier(self) -> bool:
        """Return whether `keep_earlier` was done."""
        return (self._root / FOLDER / _EARLIER).exists()

    def keep_earlier(self, used: Used) -> bool:
        """Record once which namespaces used which names of the registry without namespaces; return False if it was done before.

        Their own versions of such a name continue the numbers of the earlier ones, so that `mnist@3` keeps its meaning.
        """
        if self.knows_earlier():
            return False
        for kind, names in used.items():
            for name, namespaces in names.items():
                last = numbered_record.next_number(self._parent(kind, DEFAULT) / name) - 1
                for namespace in namespaces:
                    folder = self._parent(kind, namespace) / name
                    if last and not numbered_record.record(folder, last, numbered_record.GONE).exists():
                        numbered_record.put(numbered_record.record(folder, last, numbered_record.GONE), b"")
        # Last: if this file exists, everything above was done.
        numbered_record.put(self._root / FOLDER / _EARLIER, json.dumps(used).encode())
        self._earlier = None
        return True

    def used_earlier(self, kind: str, name: str, namespace: str) -> bool:
        """Return whether objects of a namespace used a name of the registry without namespaces."""
        if not self._several or namespace == DEFAULT:
            return False
        if self._earlier is None:
            try:
                self._earlier = json.loads((self._root / FOLDER / _EARLIER).read_bytes())
            except FileNotFoundError:
                return False
        return namespace in (self._earlier or {}).get(kind, {}).get(name, ())

    # Helpers

    def _has(self, kind: str, reference: str, namespace: str) -> bool:
        """Return whether the namespace has that version itself."""
        name, _, selector = reference.partition("@")
        if not _SIMPLE.fullmatch(name) or (selector and not _SIMPLE.fullmatch(selector)):
            return True
        folder = self._parent(kind, namespace) / name
        versions = numbered_record.numbers(folder)
        return (
            selector in map(str, versions)
            or (selector in ("", "latest") and bool(versions))
            or (folder / "aliases" / selector).is_file()
        )

    def _other(self, reference: str) -> str:
        namespace, bare = split(reference)
        if namespace == DEFAULT or self._several:
            return self._joined(namespace, bare)
        message = f"{reference!r} names the namespace {namespace!r}, but the registry of this machine has no namespaces"
        raise UsageError(message, fix=f"name it {bare}")

    def _parent(self, kind: str, namespace: str) -> Path:
        return self._root / kind if namespace == DEFAULT else self._root / FOLDER / namespace / kind

    @staticmethod
    def _joined(namespace: str, bare: str) -> str:
        return bare if namespace == DEFAULT else f"{namespace}/{bare}"


def split(name: str) -> tuple[str, str]:
    """Return the namespace of an absolute name, and the name in it."""
    namespace, mark, bare = name.partition("/")
    return (namespace, bare) if mark else (DEFAULT, name)


def in_words(namespace: str) -> str:
    """Return a phrase for where an object of a namespace is, for messages."""
    return "here" if namespace == DEFAULT else f"in the namespace {namespace}"
