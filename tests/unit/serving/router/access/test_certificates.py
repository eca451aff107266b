"""Certificates: read, created, renewed, and specific errors when they cannot be used."""

from __future__ import annotations

import shutil
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fairway.serving.router.access import self_signed
from fairway.serving.router.access.certificate import parse_certificate, read_certificate
from fairway.serving.router.access.tls_file import ALPN, PortTlsFiles, check_files
from fairway.state.serving.access import TlsRule

NOW = datetime.now(UTC).timestamp()
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl program")


def pair(
    folder: Path, begins: float = NOW - 3600, ends: float = NOW + 86400, password: bytes | None = None, **names: str
) -> TlsRule:
    """Create a certificate and its key with another library, which also reads them."""
    folder.mkdir(exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x" * 60)])
    others = [x509.DNSName(names.get("dns", "a.example")), x509.RFC822Name("a@example.org")]
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(2**150 + 7).not_valid_before(datetime.fromtimestamp(begins, UTC))
        .not_valid_after(datetime.fromtimestamp(ends, UTC)).add_extension(x509.SubjectAlternativeName(others), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    certificate, private = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(b"a comment\n" + made.public_bytes(serialization.Encoding.PEM))
    kept = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    private.write_bytes(private_bytes := key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, kept))
    assert private_bytes
    private.chmod(0o600)
    return TlsRule(str(certificate), str(private))


LATE = [datetime(2049, 12, 31, tzinfo=UTC).timestamp(), datetime(2050, 1, 1, tzinfo=UTC).timestamp()]


@pytest.mark.parametrize("ends", [NOW + 60, *LATE], ids=["soon", "2049", "2050"])
def test_a_certificate_is_read_as_another_library_made_it(tmp_path: Path, ends: float) -> None:
    certificate = read_certificate(Path(pair(tmp_path, ends=ends).certificate))
    assert certificate.names == ("a.example",)
    assert certificate.ends == int(ends)
    assert certificate.begins == int(NOW - 3600)
    assert certificate.self_issued


def test_what_is_no_certificate(tmp_path: Path) -> None:
    path = tmp_path / "x.pem"
    pem = Path(pair(tmp_path).certificate).read_text()
    for text in ("", "words", "-----BEGIN CERTIFICATE-----", pem.replace("MI", "AA"), "-----END CERTIFICATE-----" + pem[:90]):
        path.write_text(text)
        with pytest.raises(ValueError, match="certificate"):
            read_certificate(path)
    path.write_bytes(b"x" * 300_000)
    with pytest.raises(ValueError, match="larger than"):
        read_certificate(path)


def test_every_cut_and_every_flipped_byte_is_refused_or_read(tmp_path: Path) -> None:
    der = ssl.PEM_cert_to_DER_cert(Path(pair(tmp_path).certificate).read_text().partition("\n")[2])
    for end in range(len(der)):
        with pytest.raises((ValueError, IndexError)):
            parse_certificate(der[:end])
    for at in range(len(der)):
        for value in (0x00, 0x7F, 0x84, 0xFF):
            try:
                parse_certificate(der[:at] + bytes([value]) + der[at + 1 :])
            except (ValueError, IndexError):
                continue


@pytest.mark.parametrize(
    ("more", "said"),
    [({"ends": NOW - 10}, "has expired"), ({"begins": NOW + 3600}, "not valid yet"), ({"password": b"secret"}, "encrypted")],
    ids=["expired", "early", "encrypted"],
)
def test_a_pair_that_protects_no_port(tmp_path: Path, more: dict, said: str) -> None:
    rule = pair(tmp_path, **more)
    found = check_files(rule, NOW)
    assert len(found) == 1
    assert said in found[0]


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    good = pair(tmp_path / "good")
    assert check_files(good, NOW) == []
    foreign = TlsRule(good.certificate, pair(tmp_path / "other").key)
    assert "does not belong to" in check_files(foreign, NOW)[0]
    Path(foreign.key).chmod(0o604)
    both = check_files(TlsRule(str(tmp_path / "none.pem"), foreign.key), NOW)
    assert ["cannot be read" in both[0], "chmod 600" in both[1]] == [True, True]
    Path(foreign.key).chmod(0o640)  # a dedicated group may read it, as some distributions set it up
    assert "chmod" not in " ".join(check_files(foreign, NOW))


def test_files_are_read_again_when_they_change_and_kept_while_they_cannot_be_used(tmp_path: Path) -> None:
    rule = pair(tmp_path)
    files = PortTlsFiles()
    files.follow(rule)
    first = files.context
    assert first is not None
    assert first.minimum_version is ssl.TLSVersion.TLSv1_2
    files.look()
    assert files.context is first
    Path(rule.certificate).write_text("broken")
    files.look()
    assert files.context is first
    assert files.problem
    pair(tmp_path)
    files.look()
    assert files.context is not first
    assert files.problem == ""
    files.follow(TlsRule(str(tmp_path / "none"), rule.key))
    assert files.context is None, "the certificate before never stands in for another document's"
    files.follow(None)
    assert files.context is None
    assert "http/1.1" in ALPN


@needs_openssl
@pytest.mark.parametrize("service", ["default/" + "m" * 63, "n" * 63 + "/" + "m" * 63, "d/m"])
def test_a_service_with_a_long_name_has_an_authority_of_its_own(tmp_path: Path, service: str) -> None:
    assert self_signed.renew(tmp_path / "tls", service, ["localhost"], NOW)
    certificate = x509.load_pem_x509_certificate((tmp_path / "tls" / "authority.pem").read_bytes())
    (name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert name.value.startswith(f"Fairway service {service}"[:55])
    assert self_signed.renew(tmp_path / "other", service[:-1] + "x", ["localhost"], NOW)
    other = x509.load_pem_x509_certificate((tmp_path / "other" / "authority.pem").read_bytes())
    assert other.subject != certificate.subject


@pytest.mark.parametrize(
    ("host", "written", "named"),
    [
        ("2001:DB8:0:0:0:0:0:1", (), "2001:db8::1"),
        ("127.0.0.1", ("[2001:db8::7]",), "2001:db8::7"),
        ("fe80::1%eth0", (), "fe80::1"),
        ("::ffff:10.0.0.1", (), "10.0.0.1"),
        ("127.0.0.1", ("Models.Example.org.",), "models.example.org"),
        ("127.0.0.1", ("*.example.org",), "*.example.org"),
        ("127.0.0.1", ("*", "a,DNS:evil", "h:8443", "a b", "m\xfcller", "x" * 300), ""),
    ],
)
@needs_openssl
def test_names_and_addresses_are_written_as_clients_compare_them(
    tmp_path: Path, host: str, written: tuple[str, ...], named: str
) -> None:
    names = self_signed.names_of(host, written)
    usual = self_signed.names_of("127.0.0.1", ())
    assert [name for name in names if name not in usual] == ([named] if named else [])
    assert self_signed.renew(tmp_path / "tls", "d/m", names, NOW)
    certificate = x509.load_pem_x509_certificate((tmp_path / "tls" / "certificate.pem").read_bytes())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = [str(each) for each in found.get_values_for_type(x509.IPAddress)]
    assert sorted([*addresses, *found.get_values_for_type(x509.DNSName)]) == sorted(names)
    assert not self_signed.renew(tmp_path / "tls", "d/m", names, NOW), "once is enough"


@pytest.mark.parametrize("called", ["h" * 70, "a b", "", "m\xfcller", "Gpu7.example.org"])
def test_a_machine_may_be_called_anything(monkeypatch: pytest.MonkeyPatch, called: str) -> None:
    monkeypatch.setattr(self_signed.socket, "gethostname", lambda: called)
    names = self_signed.names_of("::", ())
    assert names[:3] == ["localhost", "127.0.0.1", "::1"]
    assert ("gpu7.example.org" in names) == (called == "Gpu7.example.org")
    assert not any(" " in name for name in names)


@needs_openssl
def test_renewal_keeps_the_authority_and_repairs_what_a_crash_left(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    assert self_signed.renew(folder, "default/mnist", ["localhost", "127.0.0.1"], NOW)
    authority, first = (folder / "authority.pem").read_bytes(), (folder / "certificate.pem").read_bytes()
    assert not self_signed.renew(folder, "default/mnist", ["127.0.0.1"], NOW)
    assert self_signed.renew(folder, "default/mnist", ["localhost", "gpu7"], NOW), "another name"
    assert self_signed.renew(folder, "default/mnist", ["localhost"], NOW + 61 * 86400), "it ends soon"
    assert (folder / "authority.pem").read_bytes() == authority
    assert (folder / "certificate.pem").read_bytes() != first
    (folder / "certificate.pem").write_bytes(first)
    assert self_signed.renew(folder, "default/mnist", ["localhost"], NOW), "key and certificate are of different pairs"
    assert check_files(TlsRule(str(folder / "certificate.pem"), str(folder / "key.pem")), NOW + 3600) == []
    assert sorted(path.name for path in folder.iterdir()) == ["authority.key", "authority.pem", "certificate.pem", "key.pem"]
    assert {oct(path.stat().st_mode & 0o077) for path in folder.glob("*key*")} == {"0o0"}
