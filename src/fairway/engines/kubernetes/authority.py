"""The operator's own certificate authority: pods know the operator by it.

The authority is made once and lies in the operator's home, as the key of tokens does. It lives for ten years. The certificate
that the operator shows is made anew at every start and lives for a month; it is renewed while connections are open.
Pods that the operator asks get certificates of the same authority, each with a name of its own; these live for a day.
Two years before an authority ends the next one is made: new pods trust both, and the older one signs for as long as it can.
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

from fairway.app import crash
from fairway.engines.kubernetes.record.certificate import OwnCertificate

log = logging.getLogger("fairway.operator")

YEAR, DAY = 365 * 86400.0, 86400.0
AUTHORITY_LIFE, AUTHORITY_OVERLAP = 10 * YEAR, 2 * YEAR
LEAF_LIFE, LEAF_LEFT = 30 * DAY, 20 * DAY
"""How long a certificate lives, and how much of that must be left."""
POD_LIFE, POD_RENEW = DAY, DAY / 2
"""How long a pod's certificate lives, and when the pod asks for the next one."""
SKEW = 3600.0
"""Seconds before now at which a pod's certificate begins: the clock of an operator on another node may be behind."""
_BEGINNING = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
"""Of an authority: clocks of nodes may be wrong by much."""
_USES = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only")
_PATTERN = "authority-*.pem"
_SINCE = "since"


class Authority:
    """The authorities in a folder, and the certificate that the newest context shows."""

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
        """What pods trust, in PEM."""
        return b"".join(one.certificate for one in self._known).decode()

    @property
    def since(self) -> float:
        """Since when pods are given an authority: those of older runs know none. Without a record of it: always."""
        try:
            return float((self._folder / _SINCE).read_text())
        except (OSError, ValueError):
            return 0.0

    @property
    def context(self) -> ssl.SSLContext:
        """For the server; it stays the same when the certificate is renewed."""
        return self._context

    def renew(self) -> bool:
        """Show a new certificate where the one that is shown ends soon; whether it did."""
        now = self._now()
        begins, ends = self._leaf_span
        # A clock that was put back makes a certificate one of the future.
        if begins <= now and now + LEAF_LEFT < ends:
            return False
        signer = self._signer(now + LEAF_LIFE)
        leaf = _leaf(signer, self._names, (now - DAY, now + LEAF_LIFE), "fairway-operator")
        with tempfile.NamedTemporaryFile(prefix="fairway-tls-") as file:
            # The standard library takes files alone; this one is for its owner, and gone at once.
            file.write(leaf.key + leaf.certificate)
            file.flush()
            self._context.load_cert_chain(file.name)
        self._leaf_span = (now - DAY, now + LEAF_LIFE)
        return True

    def issue(self, name: str) -> OwnCertificate:
        """A new key, and a short certificate for a pod of this name."""
        now = self._now()
        return _leaf(self._signer(now + POD_LIFE), (name,), (now - SKEW, now + POD_LIFE), "fairway-pod")

    def trusted(self) -> ssl.SSLContext:
        """Verifies pods: by these authorities alone, and by the name that each must have."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(cadata=self.certificates)
        return context

    def _signer(self, until: float) -> OwnCertificate:
        """The oldest that lives so long: most pods know it."""
        return next((one for one in self._known if _ends(one) > until), self._known[-1])

    def _read(self) -> list[OwnCertificate]:
        """The authorities that are there and not over, the oldest first."""
        found = []
        for path in sorted(self._folder.glob(_PATTERN)):
            try:
                text = path.read_bytes()
                key, certificate = serialization.load_pem_private_key(text, None), x509.load_pem_x509_certificate(text)
            except (OSError, ValueError) as error:
                log.warning("%s cannot be used: %s; pods that trust it do not trust this operator", path, error)
                continue
            found.append(OwnCertificate(certificate.public_bytes(serialization.Encoding.PEM), _pem(key)))
        return [one for one in found if _ends(one) > self._now()]

    def _add(self) -> None:
        """Make the next one, whole on the disk or not at all; where another process was first, its own counts."""
        made = _authority(self._now())
        numbers = [int(path.stem.rpartition("-")[2]) for path in self._folder.glob(_PATTERN) if path.stem[-4:].isdigit()]
        if not numbers:
            _write(self._folder / _SINCE, repr(self._now()).encode())
        target = self._folder / f"authority-{max(numbers, default=0) + 1:04d}.pem"
        _write(target, made.key + made.certificate)
        self._known = self._read()


def for_endpoint(home: Path, endpoint: str, now: Callable[[], float]) -> Authority | None:
    """The authority of an operator that pods reach there; None where they reach it without TLS."""
    place = urlsplit(endpoint)
    if place.scheme != "https" or not place.hostname:
        return None
    return Authority(home / "tls", (place.hostname, "localhost"), now)


def _write(path: Path, content: bytes) -> None:
    """Make a file that is not there yet. One that appears meanwhile stays."""
    aside = path.with_name(f".{path.name}-{secrets.token_hex(6)}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError), crash.reach("secret.rename"):
            os.link(aside, path)
    finally:
        aside.unlink()


def _authority(now: float) -> OwnCertificate:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Fairway operator {secrets.token_hex(4)}")])
    # A machine without a clock of its own begins in 1970.
    builder = _begun(key, name, name, _BEGINNING, max(now, _BEGINNING.timestamp()) + AUTHORITY_LIFE, signs=True)
    return _signed(builder, key, key)


def _leaf(signer: OwnCertificate, names: Sequence[str], span: tuple[float, float], called: str) -> OwnCertificate:
    key, issuer = ec.generate_private_key(ec.SECP256R1()), x509.load_pem_x509_certificate(signer.certificate)
    own = serialization.load_pem_private_key(signer.key, None)
    assert isinstance(own, ec.EllipticCurvePrivateKey)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, called)])
    ends = min(span[1], _ends(signer))
    begins = datetime.datetime.fromtimestamp(span[0], datetime.UTC)
    builder = _begun(key, name, issuer.subject, begins, ends, signs=False)
    # Strict clients, as Python 3.13 is one, ask for the key identifiers.
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(one) for one in names]), critical=False)
    return _signed(builder, key, own)


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
) -> OwnCertificate:
    signed = builder.sign(signer, hashes.SHA256())
    return OwnCertificate(signed.public_bytes(serialization.Encoding.PEM), _pem(key))


def _pem(key: object) -> bytes:
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _ends(one: OwnCertificate) -> float:
    return x509.load_pem_x509_certificate(one.certificate).not_valid_after_utc.timestamp()
