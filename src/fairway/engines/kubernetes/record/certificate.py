"""A certificate that a server makes for itself, in memory, each time it starts.

The standard library can use keys and not make them. What is missing is little: a point on a curve, a signature, and the encoding
of it. It is done here rather than by another dependency because it happens once a start, verifies nothing, and the key never
leaves the process; TLS itself is OpenSSL's.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import secrets
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field

# The curve P-256 (FIPS 186-4, D.1.2.3): y^2 = x^3 - 3x + b over the integers modulo P; G has the order N.
_P = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_DAYS = 3650
"""Longer than any process lives; with the process the key is gone."""

_Point = tuple[int, int] | None
"""None is the neutral element."""


@dataclass(frozen=True, slots=True)
class OwnCertificate:
    """A certificate in PEM, which is also the authority that vouches for it, and its key."""

    certificate: bytes
    key: bytes = field(repr=False)


def make(names: Sequence[str], now: float) -> OwnCertificate:
    """A new key, and a certificate for a server of these names."""
    secret = 1 + secrets.randbelow(_N - 1)
    public = _multiplied(secret, _G)
    assert public is not None
    body = _body(names, _point(public), now)
    signed = _sequence(body, _ECDSA_SHA256, _bits(_signature(secret, hashlib.sha256(body).digest())))
    key = _sequence(_integer(1), _tagged(0x04, secret.to_bytes(32)), _tagged(0xA0, _P256), _tagged(0xA1, _bits(_point(public))))
    return OwnCertificate(_pem("CERTIFICATE", signed), _pem("EC PRIVATE KEY", key))


def server_context(own: OwnCertificate, callers: str) -> ssl.SSLContext:
    """A server that shows this certificate, and talks only to whoever an authority of `callers` (PEM) vouches for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile(prefix="fairway-tls-") as file:
        # The standard library takes files alone; this one is for its owner, and gone at once.
        file.write(own.key + own.certificate)
        file.flush()
        context.load_cert_chain(file.name)
    context.load_verify_locations(cadata=callers)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


# The curve


def _added(one: _Point, other: _Point) -> _Point:
    if one is None or other is None:
        return one or other
    (x1, y1), (x2, y2) = one, other
    if x1 == x2 and (y1 + y2) % _P == 0:
        return None
    slope = (3 * x1 * x1 - 3) * pow(2 * y1, -1, _P) if one == other else (y2 - y1) * pow(x2 - x1, -1, _P)
    x = (slope * slope - x1 - x2) % _P
    return x, (slope * (x1 - x) - y1) % _P


def _multiplied(number: int, point: _Point) -> _Point:
    found: _Point = None
    while number:
        if number & 1:
            found = _added(found, point)
        point = _added(point, point)
        number >>= 1
    return found


def _signature(secret: int, digest: bytes) -> bytes:
    while True:
        once = 1 + secrets.randbelow(_N - 1)
        point = _multiplied(once, _G)
        assert point is not None
        r = point[0] % _N
        s = pow(once, -1, _N) * (int.from_bytes(digest) + r * secret) % _N
        if r and s:
            return _sequence(_integer(r), _integer(s))


# The encoding (X.690, RFC 5280)


def _tagged(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 0x80:
        return bytes((tag, length)) + content
    size = length.to_bytes((length.bit_length() + 7) // 8)
    return bytes((tag, 0x80 | len(size))) + size + content


def _sequence(*parts: bytes) -> bytes:
    return _tagged(0x30, b"".join(parts))


def _integer(number: int) -> bytes:
    return _tagged(0x02, number.to_bytes(number.bit_length() // 8 + 1))


def _bits(content: bytes) -> bytes:
    return _tagged(0x03, b"\0" + content)


def _oid(*parts: int) -> bytes:
    found = bytes((parts[0] * 40 + parts[1],))
    for part in parts[2:]:
        groups = [part & 0x7F]
        while part := part >> 7:
            groups.append(0x80 | part & 0x7F)
        found += bytes(reversed(groups))
    return _tagged(0x06, found)


_P256 = _oid(1, 2, 840, 10045, 3, 1, 7)
_ECDSA_SHA256 = _sequence(_oid(1, 2, 840, 10045, 4, 3, 2))
_EC_KEY = _sequence(_oid(1, 2, 840, 10045, 2, 1), _P256)
_TRUE = b"\x01\x01\xff"


def _point(point: tuple[int, int]) -> bytes:
    return b"\x04" + point[0].to_bytes(32) + point[1].to_bytes(32)


def _body(names: Sequence[str], public: bytes, now: float) -> bytes:
    called = _sequence(_tagged(0x31, _sequence(_oid(2, 5, 4, 3), _tagged(0x0C, names[0].encode()[:64]))))
    return _sequence(
        _tagged(0xA0, _integer(2)),  # version 3
        _integer(1 + secrets.randbits(120)),
        _ECDSA_SHA256,
        called,
        # A little before now: clocks differ.
        _sequence(_time(now - 3600), _time(now + _DAYS * 86400)),
        called,
        _sequence(_EC_KEY, _bits(public)),
        _tagged(0xA3, _extensions(names)),
    )


def _extensions(names: Sequence[str]) -> bytes:
    known = _sequence(*(_tagged(0x82, name.encode()) for name in names))
    return _sequence(
        _extension((2, 5, 29, 19), _sequence(_TRUE), critical=True),  # it is its own authority
        _extension((2, 5, 29, 15), _tagged(0x03, b"\x02\x84"), critical=True),  # signs handshakes and certificates
        _extension((2, 5, 29, 37), _sequence(_oid(1, 3, 6, 1, 5, 5, 7, 3, 1))),  # of a server
        _extension((2, 5, 29, 17), known),
    )


def _extension(oid: tuple[int, ...], value: bytes, *, critical: bool = False) -> bytes:
    return _sequence(_oid(*oid), _TRUE if critical else b"", _tagged(0x04, value))


def _time(seconds: float) -> bytes:
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return _tagged(0x17, moment.strftime("%y%m%d%H%M%SZ").encode())


def _pem(label: str, content: bytes) -> bytes:
    return f"-----BEGIN {label}-----\n{base64.encodebytes(content).decode()}-----END {label}-----\n".encode()
