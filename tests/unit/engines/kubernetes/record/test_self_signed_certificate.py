"""The certificate of the record API, tested with TLS handshakes of OpenSSL."""

from __future__ import annotations

import ssl
import tempfile
import time

import pytest

from fairway.engines.kubernetes.record import self_signed_certificate
from fairway.engines.kubernetes.record.self_signed_certificate import CertificatePair

NAME = "fairway-record.fairway-system.svc"


def client(trusted: CertificatePair, own: CertificatePair | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=trusted.certificate.decode())
    if own is not None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(own.key + own.certificate)
            file.flush()
            context.load_cert_chain(file.name)
    return context


def shake_hands(server: ssl.SSLContext, caller: ssl.SSLContext, name: str) -> None:
    """Perform a TLS handshake in memory and send a byte; raise the error of either side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        caller.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(sides)
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
    assert not waiting
    sides[0].write(b"x")
    assert sides[1].read(1) == b"x"


def test_only_callers_of_the_named_authority_get_in_and_only_by_its_name() -> None:
    now = time.time()
    own, front, stranger = (self_signed_certificate.make([NAME], now) for _ in range(3))
    server = self_signed_certificate.server_context(own, front.certificate.decode())
    with pytest.raises(ssl.SSLError):
        shake_hands(server, client(own, None), NAME)
    with pytest.raises(ssl.SSLError):
        shake_hands(server, client(own, stranger), NAME)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(server, client(own, None), "another.svc")
    with pytest.raises(ssl.SSLCertVerificationError, match="self-signed"):
        shake_hands(server, client(stranger, None), NAME)


def test_a_certificate_is_of_now_and_its_key_is_not_shown() -> None:
    own = self_signed_certificate.make([NAME], time.time())
    assert b"PRIVATE" in own.key
    assert "PRIVATE" not in repr(own)
    tomorrow = self_signed_certificate.make([NAME], time.time() + 86400)
    with pytest.raises(ssl.SSLCertVerificationError, match="not yet valid"):
        shake_hands(self_signed_certificate.server_context(tomorrow, own.certificate.decode()), client(tomorrow, None), NAME)
