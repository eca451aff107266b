"""Who may read versions of other namespaces, as the cluster's roles say: `get` of `models`, `datasets` of `record.fairway.dev`.

What an object names is read in the name of the user that the operator noted on it when it was submitted. An object that was
made without Fairway names no user: it has the rights of the account `default` of its namespace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairway.app.model_store import RegistryNames
from fairway.app.ports import Clock
from fairway.app.sent import Held, nothing_held
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.client.paths import Resource
from fairway.engines.kubernetes.operator.manifests.data import versions_in
from fairway.engines.kubernetes.people import CALLER, Caller, named_by
from fairway.engines.kubernetes.record import parts
from fairway.engines.kubernetes.record.callers import review
from fairway.errors import DeniedError, RefusedError
from fairway.registry.namespaces import split
from fairway.registry.possession import Possession, is_digest, namespace_owner, user_owner

MODELS, DATASETS = "models", "datasets"
AUTHENTICATED = "system:authenticated"
REMEMBERED = 10.0
"""Seconds for which a right counts after the API server has confirmed it."""
_MOST = 5000

RESOURCES: dict[str, Resource[dict[str, Any]]] = {
    kind: Resource(dict, parts.GROUP, parts.VERSION, kind, "Record") for kind in (MODELS, DATASETS)
}


@dataclass(frozen=True, slots=True)
class Foreign:
    """A version of another namespace that an object names."""

    place: str
    """Where in the document: `data.train`."""
    kind: str
    namespace: str
    name: str


def account_of(namespace: str) -> Caller:
    """The account that stands for objects of a namespace that name no user."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return Caller(f"system:serviceaccount:{namespace}:default", groups)


def asking(namespace: str) -> Caller:
    """Who asks for an object of a namespace now."""
    return _known(CALLER.get(None), namespace)


def vouched(annotations: Mapping[str, str], namespace: str) -> Caller:
    """The user that an object of a namespace names."""
    return _known(named_by(annotations), namespace)


class Rights:
    """Asks the API server. Promises that nothing of another namespace is looked up for a caller without the right."""

    def __init__(self, client: Client, names: Mapping[str, RegistryNames], possession: Possession, clock: Clock) -> None:
        self._client = client
        self._names = names
        self._possession = possession
        self._clock = clock
        self._granted: dict[tuple[object, ...], float] = {}

    async def check_reads(self, caller: Caller, namespace: str, data: Mapping[str, str]) -> None:
        """Raises `DeniedError` for the first input of an object that the caller may not read."""
        for one in self.foreign(namespace, data):
            await self._check(caller, one)

    async def granting(self, caller: Caller, namespace: str, data: Mapping[str, str]) -> tuple[str, ...]:
        """The groups by which a caller may read the inputs; `DeniedError` where none does. The caller's own rights need none."""
        found: list[str] = []
        for one in self.foreign(namespace, data):
            await self._check(caller, one)
            if not await self._may(Caller(caller.user, (AUTHENTICATED, *found), caller.extra), one):
                found += await self._narrowed(caller, one)
        return tuple(dict.fromkeys(found))

    async def entitled(self, caller: Caller, namespace: str, data: Mapping[str, str], kind: str, reference: str) -> str:
        """The absolute name of a version that an object of a namespace names among its inputs, and whose user may read it."""
        names = self._names[kind]
        asked = names.meant(reference, namespace)
        model = asked.partition("@")[0]
        named = {place: text for place, (own, text) in versions_in(data).items() if own == kind}
        if not any(names.meant(text, namespace).partition("@")[0] == model for text in named.values()):
            message = f"{reference} is none of the inputs"
            raise DeniedError(message, fix="name it in the document: under data, or as the model")
        if split(asked)[0] != namespace and "/" in reference:
            await self._check(caller, Foreign(reference, kind, *split(model)))
        return asked

    async def held(self, caller: Caller, namespace: str) -> Held:
        """Which contents the caller need not send, because a version of the namespace holds them that the caller may read."""
        for kind in RESOURCES:
            if not await self._may(caller, Foreign("", kind, namespace, "")):
                return nothing_held
        return self._possession.held_in(namespace)

    def note_code(self, caller: Caller, namespace: str, digest: str) -> None:
        """Remember that a caller has sent a code to a namespace."""
        self._possession.note_code([namespace_owner(namespace), user_owner(caller.user)], digest)

    def check_code(self, user: str, namespace: str, digest: str) -> None:
        """Raises `RefusedError` for code that was sent neither to the namespace nor by the user."""
        owners = [namespace_owner(namespace), *([user_owner(user)] if user else [])]
        if is_digest(digest) and not self._possession.has_code(owners, digest):
            message = f"the code {digest[:12]} was never sent to the namespace {namespace}"
            raise RefusedError(message, fix="submit it with its code: fairway submit")

    def foreign(self, namespace: str, data: Mapping[str, str]) -> list[Foreign]:
        """What of the inputs is another namespace's; what was used before there were namespaces is not."""
        found = []
        for place, (kind, reference) in versions_in(data).items():
            there, name = split(self._names[kind].meant(reference, namespace).partition("@")[0])
            if there != namespace and "/" in reference:
                found.append(Foreign(place, kind, there, name))
        return found

    async def _narrowed(self, caller: Caller, one: Foreign) -> Sequence[str]:
        """One group that gives the right, found by halves; none where only several together do."""
        groups = list(caller.groups)
        while len(groups) > 1:
            half = groups[: len(groups) // 2]
            allowed = await self._may(Caller(caller.user, tuple(half), caller.extra), one)
            groups = half if allowed else groups[len(half) :]
        return groups

    async def _may(self, caller: Caller, one: Foreign) -> bool:
        try:
            await self._review(caller, one)
        except DeniedError:
            return False
        return True

    async def _check(self, caller: Caller, one: Foreign) -> None:
        try:
            await self._review(caller, one)
        except DeniedError as error:
            message = f"{one.place}: {error.message}"
            fix = f"ask an administrator of {one.namespace} for the right to get {one.kind}.{parts.GROUP} there"
            raise DeniedError(message, fix=fix) from None

    async def _review(self, caller: Caller, one: Foreign) -> None:
        key = (caller.user, caller.groups, tuple(sorted(caller.extra.items())), one.kind, one.namespace, one.name)
        now = self._clock.now()
        if abs(now - self._granted.get(key, float("-inf"))) < REMEMBERED:
            return
        await review(self._client, caller, "get", RESOURCES[one.kind], one.namespace, one.name)
        if len(self._granted) >= _MOST:
            self._granted.clear()
        self._granted[key] = now


def _known(caller: Caller | None, namespace: str) -> Caller:
    if caller is None or not caller.user:
        return account_of(namespace)
    # A user named by the API server, or by an object that the operator wrote, was authenticated.
    return caller if AUTHENTICATED in caller.groups else Caller(caller.user, (*caller.groups, AUTHENTICATED), caller.extra)
