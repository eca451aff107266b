"""The API keys of a service on this machine: a file in the folder of its router, readable by the owner only.

It holds hashes, not the keys.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from fairway.errors import UnavailableError
from fairway.serving.router.router_folder import write
from fairway.state.serving.access import ApiKey

KEYS = "keys.json"
_DECODER = msgspec.json.Decoder(tuple[ApiKey, ...])


def parse_keys(data: bytes) -> tuple[ApiKey, ...]:
    """Parse the keys of a file; raise `ValueError` if it holds none."""
    return _DECODER.decode(data)


def key_records(home: Path) -> bytes:
    """Return a service's keys for a file elsewhere, without their last uses: the same keys give the same bytes."""
    return msgspec.json.encode([replace(key, used=0.0) for key in read_keys(home)])


def read_keys(home: Path) -> tuple[ApiKey, ...]:
    """Return the keys, ordered by name. Raises `UnavailableError` if the file cannot be read: then no key is valid."""
    path = home / KEYS
    try:
        return _DECODER.decode(path.read_bytes())
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.MsgspecError) as problem:
        message = f"the API keys in {path} cannot be read: {problem}"
        raise UnavailableError(message, fix="delete the file and create the keys again with `fairway key create`") from None


def write_keys(home: Path, keys: tuple[ApiKey, ...]) -> None:
    """Replace the stored keys by these, atomically."""
    home.mkdir(parents=True, exist_ok=True)
    ordered = sorted(keys, key=lambda key: key.rule.name)
    write(home / KEYS, msgspec.json.encode(ordered))
