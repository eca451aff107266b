"""The operator's own certificate authority, by which pods authenticate the operator.

The authority is created once and stored in the operator's home folder, as the key for tokens is. It is valid for ten years. The
operator creates its server certificate at every start; that is valid for a month and is renewed while connections stay open. Pods
to which the operator connects get certificates of the same authority, each with a name of its own; these are valid for a day. Two
years before an authority expires, the next one is created: new pods trust both, and the older one signs for as long as it can.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import logging
import os
import secrets
import ssl
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fairway.app.system import crash_point
from fairway.engines.kubernetes.record.self_signed_certificate import CertificatePair

log = logging.getLogger("fairway.operator")

YEAR, DAY = 365 * 86400.0, 86400.0
AUTHORITY_LIFE, AUTHORITY_OVERLAP = 10 * YEAR, 2 * YEAR
LEAF_LIFE, LEAF_LEFT = 30 * DAY, 20 * DAY
"""Validity of the server certificate, and the remaining validity below which it is renewed."""
POD_LIFE, POD_RENEW = DAY, DAY / 2
"""Validity of a pod's certificate, and the age at which the pod requests the next one."""
SKEW = 3600.0
"""Seconds by which a pod's certificate is backdated: the clock of an operator on another node may be behind."""
_BEGINNING = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
"""Start of validity of an authority: the clocks of nodes may be wrong by much."""
_USES = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only")
_PATTERN = "authority-*.pem"
_SINCE = "since"


class CertificateAuthority:
    """The authorities in a folder, and the TLS context with the current server certificate."""

    def __init__(self, folder: Path, names: Sequence[str], now: Callable[[], float]) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._names = names
        self._now = now
        self._known = self._read()
        if not self._known or _ends(self._known[-1]) < now() + AUTHORITY_OVERLAP:
            self._add()
        self._leaf_span = (0.0, 0.0)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.renew()

    @property
    def certificates(self) -> str:
        """The trust bundle for pods, in PEM."""
        return b"".join(authority.certificate for authority in self._known).decode()

    @property
    def since(self) -> float:
        """The time since which pods get an authority: pods of older runs have none. 0.0 when there is no record of it."""
        try:
            return float((self._folder / _SINCE).read_text())
        except (OSError, ValueError):
            return 0.0

    @property
    def context(self) -> ssl.SSLContext:
        """The server's TLS context; the same object remains in use when the certificate is renewed."""
        return self._context

    def renew(self) -> bool:
        """Replace the server certificate if it expires soon. Returns whether it was replaced."""
        now = self._now()
        begins, ends = self._leaf_span
        # After the clock was set back, the certificate is not yet valid.
        if begins <= now and now + LEAF_LEFT < ends:
            return False
        signer = self._signer(now + LEAF_LIFE)
        leaf = _leaf(signer, self._names, (now - DAY, now + LEAF_LIFE), "fairway-operator")
        with tempfile.NamedTemporaryFile(prefix="fairway-tls-") as file:
            # The standard library loads certificates from files only; this one is readable by its owner only and deleted at once.
            file.write(leaf.key + leaf.certificate)
            file.flush()
            self._context.load_cert_chain(file.name)
        self._leaf_span = (now - DAY, now + LEAF_LIFE)
        return True

    def issue(self, name: str) -> CertificatePair:
        """Create a key and a short-lived certificate for the pod of this name."""
        now = self._now()
        return _leaf(self._signer(now + POD_LIFE), (name,), (now - SKEW, now + POD_LIFE), "fairway-pod")

    def trusted(self) -> ssl.SSLContext:
        """Return a TLS context that verifies pods: by these authorities alone, and by host name."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(cadata=self.certificates)
        return context

    def _signer(self, until: float) -> CertificatePair:
        """Return the oldest authority that is valid until then: most pods trust it."""
        return next((authority for authority in self._known if _ends(authority) > until), self._known[-1])

    def _read(self) -> list[CertificatePair]:
        """Return the stored authorities that have not expired, the oldest first."""
        authorities = []
        for path in sorted(self._folder.glob(_PATTERN)):
            try:
                text = path.read_bytes()
                key, certificate = serialization.load_pem_private_key(text, None), x509.load_pem_x509_certificate(text)
            except (OSError, ValueError) as error:
                log.warning("%s cannot be used: %s; pods that trust it do not trust this operator", path, error)
                continue
            authorities.append(CertificatePair(certificate.public_bytes(serialization.Encoding.PEM), _pem(key)))
        return [authority for authority in authorities if _ends(authority) > self._now()]

    def _add(self) -> None:
        """Create the next authority. The file is written atomically; if another process created it first, that one counts."""
        authority = _authority(self._now())
        numbers = [int(path.stem.rpartition("-")[2]) for path in self._folder.glob(_PATTERN) if path.stem[-4:].isdigit()]
        if not numbers:
            _write(self._folder / _SINCE, repr(self._now()).encode())
        target = self._folder / f"authority-{max(numbers, default=0) + 1:04d}.pem"
        _write(target, authority.key + authority.certificate)
        self._known = self._read()


def for_endpoint(home: Path, endpoint: str, now: Callable[[], float]) -> CertificateAuthority | None:
    """Return the authority for an operator that pods reach at this endpoint; None where they reach it without TLS."""
    parts = urlsplit(endpoint)
    if parts.scheme != "https" or not parts.hostname:
        return None
    return CertificateAuthority(home / "tls", (parts.hostname, "localhost"), now)


def _write(path: Path, content: bytes) -> None:
    """Create a file atomically. If the file exists already, or appears meanwhile, it stays unchanged."""
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(6)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError), crash_point.reach("secret.rename"):
            os.link(temporary, path)
    finally:
        temporary.unlink()


def _authority(now: float) -> CertificatePair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Fairway operator {secrets.token_hex(4)}")])
    # A machine without a battery-backed clock starts in 1970.
    builder = _begun(key, name, name, _BEGINNING, max(now, _BEGINNING.timestamp()) + AUTHORITY_LIFE, signs=True)
    return _signed(builder, key, key)


def _leaf(signer: CertificatePair, names: Sequence[str], span: tuple[float, float], called: str) -> CertificatePair:
    key, issuer = ec.generate_private_key(ec.SECP256R1()), x509.load_pem_x509_certificate(signer.certificate)
    signing_key = serialization.load_pem_private_key(signer.key, None)
    assert isinstance(signing_key, ec.EllipticCurvePrivateKey)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, called)])
    ends = min(span[1], _ends(signer))
    begins = datetime.datetime.fromtimestamp(span[0], datetime.UTC)
    builder = _begun(key, name, issuer.subject, begins, ends, signs=False)
    # Strict clients such as Python 3.13 require the key identifiers.
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    builder = builder.add_extension(
        x509.SubjectAlternativeName([_alternative(alternative) for alternative in names]), critical=False
    )
    return _signed(builder, key, signing_key)


def _begun(
    key: ec.EllipticCurvePrivateKey, name: x509.Name, issuer: x509.Name, begins: datetime.datetime, ends: float, *, signs: bool
) -> x509.CertificateBuilder:
    usage = x509.KeyUsage(digital_signature=not signs, key_cert_sign=signs, crl_sign=signs, **dict.fromkeys(_USES, False))
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(datetime.datetime.fromtimestamp(ends, datetime.UTC))
        .add_extension(x509.BasicConstraints(ca=signs, path_length=0 if signs else None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _signed(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey
) -> CertificatePair:
    signed = builder.sign(signer, hashes.SHA256())
    return CertificatePair(signed.public_bytes(serialization.Encoding.PEM), _pem(key))


def _pem(key: object) -> bytes:
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _ends(one: CertificatePair) -> float:
    return x509.load_pem_x509_certificate(one.certificate).not_valid_after_utc.timestamp()
