"""Access rules of a service, which its router enforces: API keys, CORS and TLS."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

KEY_LIMIT = 256
"""Maximum number of API keys per service."""
OPEN_PATHS = ("/v2/health/live", "/v2/health/ready")
"""Default paths that need no key: load balancers probe them and cannot send a key."""
POD_TLS_FOLDER = "/fairway/tls"
"""Folder in a router pod where the Secret with its certificate is mounted."""
_MARK = "fwk"


@dataclass(frozen=True, slots=True)
class KeyRule:
    """An API key as the router stores it."""

    name: str
    id: str
    """Public part of the key, which selects the rule."""
    digest: str
    """SHA-256 of the whole key, in hex."""
    rate: float = 0.0
    """Requests per second; 0: no limit."""
    expires: float = 0.0
    """Expiry time in seconds since the epoch; 0: never."""


@dataclass(frozen=True, slots=True)
class CorsRule:
    """Web pages of other origins that may read responses."""

    origins: tuple[str, ...]
    """`https://app.example.org`, or `*` alone."""
    methods: tuple[str, ...] = ("GET", "POST")
    headers: tuple[str, ...] = ()
    """Headers that a page may send; `*` alone: all headers that its preflight request names."""
    credentials: bool = False
    max_age: int = 600
    """Seconds for which a browser caches the answer to a preflight request."""


@dataclass(frozen=True, slots=True)
class TlsRule:
    """The certificate of the service's port. Without paths, Fairway makes a self-signed one."""

    certificate: str = ""
    """Path of a PEM file with the certificate and the intermediate certificates up to its authority."""
    key: str = ""
    """Path of a PEM file with the private key."""

    @property
    def self_signed(self) -> bool:
        """Whether Fairway creates the certificate."""
        return not self.certificate


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The access rules of one service."""

    keys_required: bool = False
    keys: tuple[KeyRule, ...] = ()
    open_paths: tuple[str, ...] = OPEN_PATHS
    """Paths that need no key for GET and HEAD; compared exactly."""
    cors: CorsRule | None = None
    tls: TlsRule | None = None


def service_tag(service: str) -> str:
    """Return the part of a key that identifies its service, so that a key of another service is recognised without a secret."""
    return hashlib.sha256(service.encode()).hexdigest()[:8]


def format_key(service: str, key_id: str, secret: str) -> str:
    """Return the text of a key. `key_id`: 8 hex digits; `secret`: 256 random bits as URL-safe text without dashes."""
    return f"{_MARK}-{service_tag(service)}-{key_id}-{secret}"


def split_key(text: str) -> tuple[str, str] | None:
    """Return (service tag, id) of a key; None if the text does not have the form of a key."""
    parts = text.split("-", 3)
    if len(parts) != 4 or parts[0] != _MARK or not parts[3]:
        return None
    return parts[1], parts[2]


def digest_of(key: str) -> str:
    """Return the digest that is stored instead of a key.

    A fast hash is right here: a key has 256 random bits, so guessing is infeasible. Slow hashes (bcrypt, argon2) protect
    passwords that people choose, and would cost milliseconds per request.
    """
    return hashlib.sha256(key.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key as it is stored: everything but the key itself."""

    rule: KeyRule
    created: float = 0.0
    """Creation time in seconds since the epoch."""
    used: float = 0.0
    """Time of the last use, accurate to about ten minutes; 0: never."""


@dataclass(frozen=True, slots=True)
class PortProtection:
    """Current protection of a service's port."""

    keys: int = 0
    """Number of stored API keys, including expired ones."""
    certificate: str = ""
    """Path of the certificate; empty: the port has no TLS."""
    authority: str = ""
    """Path of the certificate that clients must trust, if the certificate is not signed by a well-known authority."""
    names: tuple[str, ...] = ()
    """Names and addresses in the certificate."""
    ends: float = 0.0
    """Expiry time of the certificate in seconds since the epoch; 0: not known."""
    problem: str = ""
    """Current or imminent problem with the certificate, with the fix; empty: none."""
