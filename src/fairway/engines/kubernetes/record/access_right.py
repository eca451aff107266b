"""Read access to versions of other namespaces, by the cluster's roles: `get` of `models`, `datasets` of `record.fairway.dev`.

What an object names is read on behalf of the user that the operator noted on the object when it was submitted. An object that was
created without Fairway names no user: it has the rights of the account `default` of its namespace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairway.app.port.model_store import NameResolver
from fairway.app.port.port import Clock
from fairway.app.upload import Held, nothing_held
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.api_path import ApiResource
from fairway.engines.kubernetes.identity.caller import CALLER, ClusterCaller, named_by
from fairway.engines.kubernetes.operator.manifest.input import versions_in
from fairway.engines.kubernetes.record import resource
from fairway.engines.kubernetes.record.front_proxy import review
from fairway.errors import DeniedError, RefusedError
from fairway.registry.registry_namespace import split
from fairway.registry.upload.content_ownership import ContentOwnership, is_digest, namespace_owner, user_owner

MODELS, DATASETS = "models", "datasets"
AUTHENTICATED = "system:authenticated"
REMEMBERED = 10.0
"""Seconds for which a granted right is cached."""
_MOST = 5000

RESOURCES: dict[str, ApiResource[dict[str, Any]]] = {
    kind: ApiResource(dict, resource.GROUP, resource.VERSION, kind, "Record") for kind in (MODELS, DATASETS)
}


@dataclass(frozen=True, slots=True)
class ForeignVersion:
    """A version of another namespace that an object names."""

    place: str
    """The place in the document: `data.train`."""
    kind: str
    namespace: str
    name: str


def account_of(namespace: str) -> ClusterCaller:
    """Return the account that stands for objects of a namespace that name no user."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return ClusterCaller(f"system:serviceaccount:{namespace}:default", groups)


def asking(namespace: str) -> ClusterCaller:
    """Return the current caller, or the default account of the namespace."""
    return _known(CALLER.get(None), namespace)


def vouched(annotations: Mapping[str, str], namespace: str) -> ClusterCaller:
    """Return the user that an object of a namespace names, or the default account of the namespace."""
    return _known(named_by(annotations), namespace)


class AccessReviewer:
    """Checks rights with the API server. Nothing of another namespace is looked up for a caller without the right."""

    def __init__(self, client: ApiClient, names: Mapping[str, NameResolver], possession: ContentOwnership, clock: Clock) -> None:
        self._client = client
        self._names = names
        self._possession = possession
        self._clock = clock
        self._granted: dict[tuple[object, ...], float] = {}

    async def check_reads(self, caller: ClusterCaller, namespace: str, data: Mapping[str, str]) -> None:
        """Raise `DeniedError` for the first input of an object that the caller may not read."""
        for version in self.foreign(namespace, data):
            await self._check(caller, version)

    async def granting(self, caller: ClusterCaller, namespace: str, data: Mapping[str, str]) -> tuple[str, ...]:
        """Return groups by which the caller may read the inputs; none where the caller's own rights suffice.

        Raises `DeniedError` where the caller may not read an input.
        """
        groups: list[str] = []
        for version in self.foreign(namespace, data):
            await self._check(caller, version)
            if not await self._may(ClusterCaller(caller.user, (AUTHENTICATED, *groups), caller.extra), version):
                groups += await self._narrowed(caller, version)
        return tuple(dict.fromkeys(groups))

    async def entitled(self, caller: ClusterCaller, namespace: str, data: Mapping[str, str], kind: str, reference: str) -> str:
        """Return the absolute name of a version if it is among the object's inputs and the caller may read it.

        Raises `DeniedError` otherwise.
        """
        names = self._names[kind]
        absolute = names.meant(reference, namespace)
        model = absolute.partition("@")[0]
        named = {place: text for place, (own, text) in versions_in(data).items() if own == kind}
        if not any(names.meant(text, namespace).partition("@")[0] == model for text in named.values()):
            message = f"{reference} is not one of the inputs"
            raise DeniedError(message, fix="name it in the document: under data, or as the model")
        if split(absolute)[0] != namespace and "/" in reference:
            await self._check(caller, ForeignVersion(reference, kind, *split(model)))
        return absolute

    async def held(self, caller: ClusterCaller, namespace: str) -> Held:
        """Return the contents that the caller need not send, because a readable version of the namespace has them."""
        for kind in RESOURCES:
            if not await self._may(caller, ForeignVersion("", kind, namespace, "")):
                return nothing_held
        return self._possession.held_in(namespace)

    def note_code(self, caller: ClusterCaller, namespace: str, digest: str) -> None:
        """Record that a caller has sent this code to a namespace."""
        self._possession.note_code([namespace_owner(namespace), user_owner(caller.user)], digest)

    def check_code(self, user: str, namespace: str, digest: str) -> None:
        """Raise `RefusedError` for code that was sent neither to the namespace nor by the user."""
        owners = [namespace_owner(namespace), *([user_owner(user)] if user else [])]
        if is_digest(digest) and not self._possession.has_code(owners, digest):
            message = f"the code {digest[:12]} was never sent to the namespace {namespace}"
            raise RefusedError(message, fix="submit it with its code: fairway submit")

    def foreign(self, namespace: str, data: Mapping[str, str]) -> list[ForeignVersion]:
        """Return the inputs that belong to another namespace.

        A reference without a namespace does not count, even if it resolves to a version from before there were namespaces.
        """
        versions = []
        for place, (kind, reference) in versions_in(data).items():
            owner, name = split(self._names[kind].meant(reference, namespace).partition("@")[0])
            if owner != namespace and "/" in reference:
                versions.append(ForeignVersion(place, kind, owner, name))
        return versions

    async def _narrowed(self, caller: ClusterCaller, one: ForeignVersion) -> Sequence[str]:
        """Return one group that gives the right, by binary search; none where only several groups together give it."""
        groups = list(caller.groups)
        while len(groups) > 1:
            half = groups[: len(groups) // 2]
            allowed = await self._may(ClusterCaller(caller.user, tuple(half), caller.extra), one)
            groups = half if allowed else groups[len(half) :]
        return groups

    async def _may(self, caller: ClusterCaller, one: ForeignVersion) -> bool:
        try:
            await self._review(caller, one)
        except DeniedError:
            return False
        return True

    async def _check(self, caller: ClusterCaller, one: ForeignVersion) -> None:
        try:
            await self._review(caller, one)
        except DeniedError as error:
            message = f"{one.place}: {error.message}"
            fix = f"ask an administrator of {one.namespace} for the right to get {one.kind}.{resource.GROUP} there"
            raise DeniedError(message, fix=fix) from None

    async def _review(self, caller: ClusterCaller, one: ForeignVersion) -> None:
        key = (caller.user, caller.groups, tuple(sorted(caller.extra.items())), one.kind, one.namespace, one.name)
        now = self._clock.now()
        if abs(now - self._granted.get(key, float("-inf"))) < REMEMBERED:
            return
        await review(self._client, caller, "get", RESOURCES[one.kind], one.namespace, one.name)
        if len(self._granted) >= _MOST:
            self._granted.clear()
        self._granted[key] = now


def _known(caller: ClusterCaller | None, namespace: str) -> ClusterCaller:
    if caller is None or not caller.user:
        return account_of(namespace)
    # A user that the API server reported, or that the operator wrote into an object, was authenticated.
    return caller if AUTHENTICATED in caller.groups else ClusterCaller(caller.user, (*caller.groups, AUTHENTICATED), caller.extra)
