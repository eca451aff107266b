"""API keys of services: create, list and revoke. A key itself is returned once and never stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fairway.app.port.port import Clock
from fairway.app.port.serving import KeyStore
from fairway.errors import ConflictError, NotFoundError, RefusedError, UsageError
from fairway.state.serving.access import KEY_LIMIT, ApiKey, KeyRule, digest_of, format_key
from fairway.units import quantity, rate, suggestion
from fairway.units.names import check_name


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """A key to be created."""

    name: str
    rate: str = ""
    """`100/s`; empty: no limit."""
    expires: str = ""
    """`30d`; empty: never."""


class KeyUseCases:
    """The use cases of keys. `noted` is called with service, reason and message of every change."""

    def __init__(self, store: KeyStore, clock: Clock, random_hex: Callable[[int], str]) -> None:
        self._store = store
        self._clock = clock
        self._random_hex = random_hex
        self.noted: Callable[[str, str, str], Awaitable[None]] = _unnoted

    def planned(self, service: str, wish: KeyRequest) -> ApiKey:
        """Return the key that `create` would make, with an empty digest; all errors of the request are raised at once."""
        return self._rule(service, wish, "00000000", "")

    async def create(self, service: str, wish: KeyRequest) -> tuple[str, ApiKey]:
        """Create a key; it is accepted by routers when this returns.

        Return the key, which is not stored, and its stored record.
        """
        key_id = self._random_hex(4)
        text = format_key(service, key_id, self._random_hex(32))
        record = self._rule(service, wish, key_id, digest_of(text))

        def add(keys: tuple[ApiKey, ...]) -> tuple[ApiKey, ...]:
            self.check(service, wish.name, keys)
            if any(key.rule.id == key_id for key in keys):
                message = f"{service}: the key {wish.name} could not be created"
                raise ConflictError(message, fix="try again")
            return (*keys, record)

        await self._store.change_keys(service, add)
        await self.noted(service, "KeyCreated", record.rule.name)
        return text, record

    @staticmethod
    def check(service: str, name: str, keys: tuple[ApiKey, ...]) -> None:
        """Refuse a name that is taken, and more keys than a service may have."""
        if any(key.rule.name == name for key in keys):
            message = f"{service} has a key {name} already"
            raise ConflictError(message, fix=f"choose another name, or revoke it: fairway key revoke {_short(service)} {name}")
        if len(keys) >= KEY_LIMIT:
            message = f"{service} has {KEY_LIMIT} keys, and may not have more"
            raise RefusedError(message, fix=f"revoke those that are not used: fairway key list {_short(service)}")

    async def keys(self, service: str) -> tuple[ApiKey, ...]:
        """Return the stored records of the keys, in order of name."""
        return await self._store.keys(service)

    async def revoke(self, service: str, name: str) -> None:
        """Revoke a key. When this returns, no router of the service accepts it."""
        self.find(service, name, await self._store.keys(service))
        await self._store.change_keys(service, lambda keys: tuple(key for key in keys if key.rule.name != name))
        await self.noted(service, "KeyRevoked", name)

    @staticmethod
    def find(service: str, name: str, keys: tuple[ApiKey, ...]) -> ApiKey:
        """Return the key of that name."""
        for key in keys:
            if key.rule.name == name:
                return key
        names = [key.rule.name for key in keys]
        message = f"{service} has no key {name}"
        listing = f"it has {', '.join(names)}" if names else f"`fairway key list {_short(service)}` lists the keys"
        raise NotFoundError(message, fix=suggestion.did_you_mean(name, names) or listing)

    def _rule(self, service: str, wish: KeyRequest, key_id: str, digest: str) -> ApiKey:
        mistakes: list[str] = []
        limit = lifetime = 0.0
        try:
            check_name(wish.name)
        except ValueError as problem:
            mistakes.append(f"--name {wish.name!r} {problem}")
        try:
            limit = rate.per_second(wish.rate) if wish.rate else 0.0
        except ValueError as problem:
            mistakes.append(f"--rate {wish.rate} {problem}")
        try:
            lifetime = quantity.seconds(wish.expires) if wish.expires else 0.0
            if wish.expires and lifetime <= 0:
                mistakes.append(f"--expires {wish.expires} is not in the future; write for example 30d")
        except ValueError as problem:
            mistakes.append(f"--expires {wish.expires} {problem}")
        if mistakes:
            message = f"{service}: the key cannot be created: {'; '.join(mistakes)}"
            raise UsageError(message, fix=f"fairway key create {_short(service)} --name ci --rate 100/s --expires 30d")
        now = self._clock.now()
        return ApiKey(KeyRule(wish.name, key_id, digest, limit, now + lifetime if lifetime else 0.0), created=now)


def _short(service: str) -> str:
    return service.rpartition("/")[2]


async def _unnoted(_service: str, _reason: str, _message: str) -> None:
    """Default: changes are not recorded."""
