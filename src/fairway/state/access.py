"""Who may send requests to a service, and how its port is protected: the rules that a router enforces."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

KEY_LIMIT = 256
"""Keys that a service may have."""
OPEN_PATHS = ("/v2/health/live", "/v2/health/ready")
"""Paths that need no key unless the document says otherwise: load balancers ask them and cannot send one."""
POD_TLS_FOLDER = "/fairway/tls"
"""Where a router pod finds the Secret with its certificate."""
_MARK = "fwk"


@dataclass(frozen=True, slots=True)
class KeyRule:
    """An API key as the router knows it."""

    name: str
    id: str
    """The public part of the key: says which rule it belongs to."""
    digest: str
    """SHA-256 of the whole key, in hex."""
    rate: float = 0.0
    """Requests a second; 0: no limit."""
    expires: float = 0.0
    """Seconds since the epoch; 0: never."""


@dataclass(frozen=True, slots=True)
class CorsRule:
    """Which pages of other origins may read answers."""

    origins: tuple[str, ...]
    """`https://app.example.org`, or `*` alone."""
    methods: tuple[str, ...] = ("GET", "POST")
    headers: tuple[str, ...] = ()
    """Names of headers that a page may send; `*` alone: those that it asks for."""
    credentials: bool = False
    max_age: int = 600
    """Seconds for which a browser keeps the answer to a preflight."""


@dataclass(frozen=True, slots=True)
class TlsRule:
    """The certificate of the port. Without paths Fairway makes a self-signed one."""

    certificate: str = ""
    """The path of a PEM file with the certificate and those between it and its authority."""
    key: str = ""
    """The path of a PEM file with the private key."""

    @property
    def self_signed(self) -> bool:
        """Whether Fairway makes the certificate."""
        return not self.certificate


@dataclass(frozen=True, slots=True)
class Access:
    """The rules of one service."""

    keys_required: bool = False
    keys: tuple[KeyRule, ...] = ()
    open_paths: tuple[str, ...] = OPEN_PATHS
    """Answered without a key for GET and HEAD; compared exactly."""
    cors: CorsRule | None = None
    tls: TlsRule | None = None


def service_tag(service: str) -> str:
    """The part of a key that names its service, so that a key of another service is recognised without a secret."""
    return hashlib.sha256(service.encode()).hexdigest()[:8]


def format_key(service: str, key_id: str, secret: str) -> str:
    """The text of a key. `key_id`: 8 hex digits; `secret`: 256 random bits as URL-safe text, without dashes at all."""
    return f"{_MARK}-{service_tag(service)}-{key_id}-{secret}"


def split_key(text: str) -> tuple[str, str] | None:
    """(service tag, id) of a key; None when the text has not the form of one."""
    parts = text.split("-", 3)
    if len(parts) != 4 or parts[0] != _MARK or not parts[3]:
        return None
    return parts[1], parts[2]


def digest_of(key: str) -> str:
    """What is kept of a key.

    A fast hash is right here: a key holds 256 random bits, so that a list of guesses cannot be tried. Slow hashes (bcrypt,
    argon2) protect passwords that people choose, and would cost milliseconds for each request.
    """
    return hashlib.sha256(key.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key as it is kept: everything but the key itself."""

    rule: KeyRule
    created: float = 0.0
    """Seconds since the epoch."""
    used: float = 0.0
    """When it was used last, to about ten minutes; 0: never."""


@dataclass(frozen=True, slots=True)
class AccessState:
    """How the port of a service is protected at the moment."""

    keys: int = 0
    """API keys that are kept, expired ones included."""
    certificate: str = ""
    """The path of the certificate; empty: the port has no TLS."""
    authority: str = ""
    """The path of what clients must trust, where the usual authorities do not vouch for the certificate."""
    names: tuple[str, ...] = ()
    """Names and addresses in the certificate."""
    ends: float = 0.0
    """When the certificate expires, in seconds since the epoch; 0: not known."""
    problem: str = ""
    """What is wrong with it, or soon will be, with the fix; empty: nothing."""
