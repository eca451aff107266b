"""API keys: created, listed, revoked; mistakes are reported at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairway.app.key import KeyRequest, KeyUseCases
from fairway.errors import ConflictError, NotFoundError, RefusedError, UsageError
from fairway.state.serving.access import KEY_LIMIT, ApiKey, digest_of, split_key

SERVICE = "default/mnist"


class Store:
    def __init__(self) -> None:
        self.kept: tuple[ApiKey, ...] = ()

    async def keys(self, service: str) -> tuple[ApiKey, ...]:
        return self.kept

    async def change_keys(self, service: str, change: Callable[[tuple[ApiKey, ...]], tuple[ApiKey, ...]]) -> tuple[ApiKey, ...]:
        self.kept = change(self.kept)
        return self.kept


class Standing:
    def now(self) -> float:
        return 1000.0


class Counter:
    def __init__(self) -> None:
        self.made = 0

    def __call__(self, size: int) -> str:
        self.made += 1
        return f"{self.made:0{2 * size}x}"


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def keys(store: Store) -> KeyUseCases:
    return KeyUseCases(store, Standing(), Counter())


async def test_a_key_is_given_out_once_and_kept_as_a_hash(store: Store, keys: KeyUseCases) -> None:
    noted: list[tuple[str, str, str]] = []

    async def note(service: str, reason: str, message: str) -> None:
        noted.append((service, reason, message))

    keys.noted = note
    text, made = await keys.create(SERVICE, KeyRequest("ci", "60/m", "1h"))
    assert store.kept == (made,)
    assert made.rule.digest == digest_of(text)
    assert text not in repr(made)
    assert split_key(text) is not None
    assert (made.rule.rate, made.rule.expires, made.created) == (1.0, 4600.0, 1000.0)
    assert noted == [(SERVICE, "KeyCreated", "ci")]
    assert text not in repr(noted)
    await keys.revoke(SERVICE, "ci")
    assert store.kept == ()


async def test_names_are_unique_and_keys_bounded(store: Store, keys: KeyUseCases) -> None:
    await keys.create(SERVICE, KeyRequest("ci"))
    with pytest.raises(ConflictError, match="has a key ci already"):
        await keys.create(SERVICE, KeyRequest("ci"))
    store.kept = store.kept * KEY_LIMIT
    with pytest.raises(RefusedError, match="may not have more"):
        await keys.create(SERVICE, KeyRequest("other"))


async def test_a_key_that_is_not_there(keys: KeyUseCases) -> None:
    await keys.create(SERVICE, KeyRequest("laptop"))
    with pytest.raises(NotFoundError, match="no key latop") as refused:
        await keys.revoke(SERVICE, "latop")
    assert "laptop" in str(refused.value.fix)


async def test_a_key_of_a_service_without_keys(keys: KeyUseCases) -> None:
    with pytest.raises(NotFoundError, match="no key ci") as refused:
        await keys.revoke(SERVICE, "ci")
    assert refused.value.fix == "`fairway key list mnist` lists the keys"


async def test_all_mistakes_at_once(keys: KeyUseCases) -> None:
    with pytest.raises(UsageError) as refused:
        await keys.create(SERVICE, KeyRequest("Bad Name", "fast", "tomorrow"))
    for word in ("--name", "--rate", "--expires"):
        assert word in str(refused.value)
    for wish in (KeyRequest("a", "0/s"), KeyRequest("a", expires="0s"), KeyRequest("a", "1e9/s")):
        with pytest.raises(UsageError):
            await keys.create(SERVICE, wish)
