"""The operator's certificate authority: stored, renewed without interruption, replaced before it expires."""

from __future__ import annotations

import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest
from cryptography import x509

from fairway.engines.kubernetes import certificate_authority as authorities
from fairway.engines.kubernetes.certificate_authority import DAY, YEAR, CertificateAuthority, for_endpoint

NAME = "fairway-operator.tools.svc.cluster.local"
NOW = 1_800_000_000.0


class Clock:
    """A clock that is set forward and back."""

    def __init__(self, now: float = NOW) -> None:
        self.time = now

    def __call__(self) -> float:
        return self.time


def shown(server: ssl.SSLContext, trusted: str, name: str = NAME) -> x509.Certificate:
    """Return the certificate that a client sees. Raise `ssl.SSLError` if the client does not trust it.

    The client applies the strict rules of Python 3.13. It does not check the time, since the clocks of these tests differ.
    """
    client = ssl.create_default_context(cadata=trusted)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    client.verify_flags |= ssl.VerifyFlags(0x200000)  # X509_V_FLAG_NO_CHECK_TIME
    ours, theirs = socket.socketpair()

    def answer() -> None:
        try:
            with server.wrap_socket(theirs, server_side=True) as secured:
                secured.recv(1)
        except OSError:
            theirs.close()

    serving = threading.Thread(target=answer)
    serving.start()
    try:
        with client.wrap_socket(ours, server_hostname=name) as secured:
            found = secured.getpeercert(binary_form=True)
            secured.send(b"x")
    finally:
        ours.close()
        serving.join()
    assert found is not None
    return x509.load_der_x509_certificate(found)


def test_pods_know_the_operator_by_it_and_nobody_else(tmp_path: Path) -> None:
    ours, other = (CertificateAuthority(tmp_path / name, (NAME, "10.0.0.7"), Clock()) for name in ("ours", "other"))
    assert shown(ours.context, ours.certificates).subject.rfc4514_string() == "CN=fairway-operator"
    shown(ours.context, ours.certificates, "10.0.0.7")
    with pytest.raises(ssl.SSLCertVerificationError):
        shown(ours.context, ours.certificates, "fairway-operator.other.svc.cluster.local")
    with pytest.raises(ssl.SSLCertVerificationError):
        shown(other.context, ours.certificates)


def test_it_is_kept_where_only_the_operator_reads_it(tmp_path: Path) -> None:
    first = CertificateAuthority(tmp_path / "tls", (NAME,), Clock())
    again = CertificateAuthority(tmp_path / "tls", (NAME,), Clock(NOW + 100))
    assert first.certificates == again.certificates
    assert first.since == again.since == NOW
    shown(again.context, first.certificates)
    files = sorted(path.name for path in (tmp_path / "tls").iterdir())
    assert files == ["authority-0001.pem", "since"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "tls").iterdir()} == {0o600}
    assert "PRIVATE" not in first.certificates


def test_what_it_shows_is_renewed_in_time_under_the_same_context(tmp_path: Path) -> None:
    clock = Clock()
    authority = CertificateAuthority(tmp_path, (NAME,), clock)
    before, trusted = shown(authority.context, authority.certificates), authority.certificates
    clock.time += 9 * DAY
    assert not authority.renew()
    clock.time += 2 * DAY
    assert authority.renew()
    after = shown(authority.context, trusted)
    assert after.serial_number != before.serial_number
    assert after.not_valid_after_utc > before.not_valid_after_utc
    # Setting the clock back makes the certificate not valid yet.
    clock.time -= 100 * DAY
    assert authority.renew()
    assert shown(authority.context, trusted).not_valid_before_utc.timestamp() < clock.time


def test_an_authority_ends_only_after_pods_know_the_next(tmp_path: Path) -> None:
    clock = Clock()
    first = CertificateAuthority(tmp_path, (NAME,), clock)
    clock.time += 8.5 * YEAR
    both = CertificateAuthority(tmp_path, (NAME,), clock)
    assert both.certificates.startswith(first.certificates)
    assert both.certificates.count("BEGIN CERTIFICATE") == 2
    # Earlier pods have only the first authority, and still trust the operator.
    shown(both.context, first.certificates)
    clock.time += 1.45 * YEAR
    late = CertificateAuthority(tmp_path, (NAME,), clock)
    shown(late.context, both.certificates)
    with pytest.raises(ssl.SSLCertVerificationError):
        shown(late.context, first.certificates)


def test_a_file_that_cannot_be_read_is_kept_and_another_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = CertificateAuthority(tmp_path, (NAME,), Clock())
    (tmp_path / "authority-0001.pem").write_bytes(b"-----BEGIN")
    authority = CertificateAuthority(tmp_path, (NAME,), Clock())
    assert "authority-0001.pem cannot be used" in caplog.text
    assert authority.certificates != before.certificates
    assert (tmp_path / "authority-0001.pem").read_bytes() == b"-----BEGIN"
    assert CertificateAuthority(tmp_path, (NAME,), Clock()).certificates == authority.certificates


def test_of_two_that_begin_at_once_one_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = authorities._authority
    others: list[CertificateAuthority] = []

    def made_late(now: float) -> authorities.CertificatePair:
        monkeypatch.setattr(authorities, "_authority", made)
        others.append(CertificateAuthority(tmp_path, (NAME,), Clock()))
        return made(now)

    monkeypatch.setattr(authorities, "_authority", made_late)
    late = CertificateAuthority(tmp_path, (NAME,), Clock())
    shown(others[0].context, late.certificates)
    shown(late.context, CertificateAuthority(tmp_path, (NAME,), Clock()).certificates)


def test_without_https_there_is_none(tmp_path: Path) -> None:
    assert for_endpoint(tmp_path, "", Clock()) is None
    assert for_endpoint(tmp_path, "http://operator:8080", Clock()) is None
    assert list(tmp_path.iterdir()) == []
    authority = for_endpoint(tmp_path, f"https://{NAME}:8080", Clock())
    assert authority is not None
    shown(authority.context, authority.certificates)
    shown(authority.context, authority.certificates, "localhost")
