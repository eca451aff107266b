"""Reads the names and times of a PEM certificate without a library.

The standard library reads certificates of peers only. These few DER fields (X.690, RFC 5280) need no more than a reader of
lengths. OpenSSL checks whether certificate and key belong together.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

_SEQUENCE, _OCTETS, _UTC_TIME, _ANY_TIME = 0x30, 0x04, 0x17, 0x18
_EXTENSIONS, _VERSION = 0xA3, 0xA0
_DNS, _IP = 0x82, 0x87
_ALTERNATIVE_NAMES = bytes.fromhex("0603551d11")
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_LARGEST = 256 * 1024
"""Limit on the bytes of a file with certificates."""


@dataclass(frozen=True, slots=True)
class ParsedCertificate:
    """The first certificate of a file."""

    names: tuple[str, ...]
    """DNS names and IP addresses for which it is valid."""
    begins: float
    """Seconds since the epoch."""
    ends: float
    self_issued: bool
    """Whether its issuer is its own subject."""


def read_certificate(path: Path) -> ParsedCertificate:
    """Return the first certificate of a PEM file. `OSError`: the file cannot be read; `ValueError`: it holds none."""
    if path.stat().st_size > _LARGEST:
        message = f"is larger than {_LARGEST} bytes, so it is not a certificate file"
        raise ValueError(message)
    text = path.read_text(encoding="utf-8", errors="replace")
    begin, end = text.find(_BEGIN), text.find(_END)
    if begin < 0 or end < begin:
        message = "holds no certificate in PEM (a block that begins with -----BEGIN CERTIFICATE-----)"
        raise ValueError(message)
    try:
        return parse_certificate(ssl.PEM_cert_to_DER_cert(text[begin : end + len(_END)]))
    except (ValueError, IndexError) as problem:
        message = f"holds a certificate that cannot be read ({problem})"
        raise ValueError(message) from None


def parse_certificate(der: bytes) -> ParsedCertificate:
    """Parse a certificate in DER; raise `ValueError` or `IndexError` if it is none."""
    signed = _first(_first(der))
    fields = [part for part in _parts(signed) if part[0] != _VERSION]
    # Serial number, algorithm, issuer, validity, subject, key, then optional fields.
    issuer, validity, subject = fields[2][1], fields[3][1], fields[4][1]
    begins, ends = [_time(*part) for part in _parts(validity)]
    names: tuple[str, ...] = ()
    for tag, content in fields[6:]:
        if tag == _EXTENSIONS:
            names = tuple(_alternative_names(content))
    return ParsedCertificate(names, begins, ends, self_issued=issuer == subject)


def _alternative_names(extensions: bytes) -> Iterator[str]:
    for _, extension in _parts(_first(extensions)):
        if not extension.startswith(_ALTERNATIVE_NAMES):
            continue
        for tag, content in _parts(extension):
            if tag == _OCTETS:
                yield from (name for kind, value in _parts(_first(content)) if (name := _name(kind, value)))


def _name(kind: int, value: bytes) -> str:
    if kind == _DNS:
        return value.decode("ascii", "replace").lower()
    if kind == _IP and len(value) in (4, 16):
        return str(ipaddress.ip_address(value))
    return ""


def _time(tag: int, content: bytes) -> float:
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        # The year has two digits: from 1950 to 2049.
        text = ("19" if int(text[:2]) >= 50 else "20") + text
    elif tag != _ANY_TIME:
        message = "a validity date has the wrong type"
        raise ValueError(message)
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _first(data: bytes) -> bytes:
    """Return the content of the first value."""
    for _, content in _parts(data):
        return content
    message = "a value is missing"
    raise ValueError(message)


def _parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the tag and content of consecutive values."""
    at = 0
    while at < len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            if not 0 < size <= 4:
                message = "a length is invalid"
                raise ValueError(message)
            length = int.from_bytes(data[at : at + size], "big")
            at += size
        if at + length > len(data):
            message = "it ends early"
            raise ValueError(message)
        yield tag, data[at : at + length]
        at += length
