"""Self-signed server certificates, created in memory at each start: the key is gone with the process."""

from __future__ import annotations

import datetime
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LONGEST_NAME = 64
"""Maximum number of characters of a common name."""
_BEFORE, _AFTER = datetime.timedelta(hours=1), datetime.timedelta(days=3650)
"""Validity: from a little before now, because clocks differ, to longer than any process lives."""


@dataclass(frozen=True, slots=True)
class CertificatePair:
    """A certificate in PEM, and its key. One that `make` creates is its own authority."""

    certificate: bytes
    key: bytes = field(repr=False)


def make(names: Sequence[str], now: float) -> CertificatePair:
    """Create a key and a certificate for a server of these names."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:_LONGEST_NAME])])
    moment = datetime.datetime.fromtimestamp(now, datetime.UTC)
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        **dict.fromkeys(("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign"), False),
        encipher_only=False,
        decipher_only=False,
    )
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - _BEFORE)
        .not_valid_after(moment + _AFTER)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return CertificatePair(signed.public_bytes(serialization.Encoding.PEM), private)


def server_context(own: CertificatePair, callers: str) -> ssl.SSLContext:
    """Return a TLS context with this certificate that requires client certificates signed by an authority in `callers` (PEM)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile(prefix="fairway-tls-") as file:
        # The standard library loads certificates from files only; this one is readable by its owner only and deleted at once.
        file.write(own.key + own.certificate)
        file.flush()
        context.load_cert_chain(file.name)
    context.load_verify_locations(cadata=callers)
    context.verify_mode = ssl.CERT_REQUIRED
    return context
