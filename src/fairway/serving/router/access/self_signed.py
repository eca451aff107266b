"""Certificates made by Fairway: an authority for the service and, signed by it, a short-lived certificate that is renewed.

Clients trust the authority (`authority.pem`, `curl --cacert`), which lasts ten years, so renewing the certificate breaks no
client. The `openssl` program makes both. The base install has no library for it, every common Linux has the program, and a
service with a certificate of its own needs neither.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from fairway.app.system import crash_point
from fairway.errors import UnavailableError
from fairway.serving.router.access.certificate import read_certificate
from fairway.serving.router.access.tls_file import server_context
from fairway.state.serving.access import service_tag

AUTHORITY, CERTIFICATE, KEY = "authority.pem", "certificate.pem", "key.pem"
_AUTHORITY_KEY = "authority.key"
_AUTHORITY_DAYS = 3650
_DAYS = 90
_RENEW_SECONDS = 30 * 86400.0
"""How long before its end a certificate is replaced, in seconds."""
_PATIENCE = 30.0
_NAME = re.compile(r"(?:\*\.)?[a-z0-9_]([a-z0-9._-]{0,251}[a-z0-9_])?")
"""What clients accept as a name. A machine may have any name."""
_LONGEST_NAME = 64
_OTHER = "give a certificate: endpoint: {tls: {certificate: FILE, key: FILE}}"

_AUTHORITY_EXTENSIONS = """\
[req]
distinguished_name = name
x509_extensions = authority
prompt = no
[name]
CN = {name}
[authority]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
"""
_EXTENSIONS = """\
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid:always
subjectAltName = {names}
"""


def find_openssl() -> str:
    """Return the program; raise `UnavailableError` if it is not installed."""
    program = shutil.which("openssl")
    if program is None:
        message = "the `openssl` program, which creates self-signed certificates, is not installed"
        raise UnavailableError(message, fix=f"install openssl, or {_OTHER}")
    return program


def names_of(host: str, hosts: Iterable[str]) -> list[str]:
    """Return the names and addresses under which clients may reach a service at `host`, in the form used in certificates."""
    names = ["localhost", "127.0.0.1", "::1", socket.gethostname(), *hosts]
    names += own_addresses() if _is_any(host) else [host]
    return list(dict.fromkeys(name for name in map(_usual, names) if name))


def own_addresses() -> list[str]:
    """Return the addresses of this machine, as far as they can be found."""
    addresses: list[str] = []
    try:
        addresses += [str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):
        # The machine's own name may not resolve, or may be invalid.
        pass
    for family, destination in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        # A machine's name often resolves to 127.0.1.1. This sends nothing; the kernel only picks the address to send from.
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((destination, 9))
                addresses.append(str(probe.getsockname()[0]))
        except OSError:
            continue
    return addresses


def renew(folder: Path, service: str, names: Iterable[str], now: float) -> bool:
    """Make a service's certificate if it is missing, ends soon or lacks a name; return whether a new one was made."""
    required = list(names)
    try:
        current = read_certificate(folder / CERTIFICATE)
        if current.ends - now > _RENEW_SECONDS and set(required) <= set(current.names) and (folder / AUTHORITY).exists():
            server_context(folder / CERTIFICATE, folder / KEY)
            return False
    except (OSError, ValueError):
        # None exists or it cannot be used, for example after a crash between key and certificate: make one.
        pass
    program = find_openssl()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as temporary:
        _make(program, folder, Path(temporary), service, required)
    return True


def _make(program: str, folder: Path, beside: Path, service: str, names: list[str]) -> None:
    """Make key and certificate in `beside`, then move them into place. `renew` detects a pair that a crash has split."""
    if not (folder / AUTHORITY).exists():
        (beside / "authority.cnf").write_text(_AUTHORITY_EXTENSIONS.format(name=_authority_name(service)))
        _key(program, beside / _AUTHORITY_KEY)
        command = ["req", "-x509", "-new", "-sha256", "-days", str(_AUTHORITY_DAYS), "-config", str(beside / "authority.cnf")]
        _run(program, [*command, "-key", str(beside / _AUTHORITY_KEY), "-out", str(beside / AUTHORITY)])
        with crash_point.reach("router.rename"):
            (beside / _AUTHORITY_KEY).replace(folder / _AUTHORITY_KEY)
        with crash_point.reach("router.rename"):
            (beside / AUTHORITY).replace(folder / AUTHORITY)
    _key(program, beside / KEY)
    (beside / "names.cnf").write_text(_EXTENSIONS.format(names=", ".join(_written(name) for name in names)))
    request = beside / "request.pem"
    _run(program, ["req", "-new", "-key", str(beside / KEY), "-subj", "/CN=fairway", "-out", str(request)])
    signed_by = [
        "-CA",
        str(folder / AUTHORITY),
        "-CAkey",
        str(folder / _AUTHORITY_KEY),
        "-set_serial",
        f"0x{os.urandom(16).hex()}",
    ]
    command = ["x509", "-req", "-sha256", "-days", str(_DAYS), "-extfile", str(beside / "names.cnf"), *signed_by]
    _run(program, [*command, "-in", str(request), "-out", str(beside / CERTIFICATE)])
    for name in (KEY, CERTIFICATE):
        with crash_point.reach("router.rename"):
            (beside / name).replace(folder / name)


def _key(program: str, path: Path) -> None:
    """Create a P-256 key, readable by the owner only from the first byte on."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    _run(program, ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(path)])
    path.chmod(0o600)


def _run(program: str, arguments: list[str]) -> None:
    # The program's own configuration may be missing or unusual; ours has everything it needs.
    environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/", "LC_ALL": "C"}
    with crash_point.reach("router.spawn"):
        result = subprocess.run(
            [program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, env=environment, timeout=_PATIENCE, check=False
        )
    if result.returncode:
        errors = result.stderr.decode(errors="replace").strip().splitlines()
        message = f"openssl {arguments[0]} failed: {errors[-1] if errors else f'exit code {result.returncode}'}"
        raise UnavailableError(message, fix=f"see `openssl version`, or {_OTHER}")


def _usual(name: str) -> str:
    """Return an address in its shortest form, a name in lower case; empty for what a certificate cannot name."""
    bare = name.removeprefix("[").removesuffix("]").partition("%")[0]
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        name = name.lower().removesuffix(".")
        return name if _NAME.fullmatch(name) else ""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _authority_name(service: str) -> str:
    """Return a name of at most 64 characters (RFC 5280, `ub-common-name`), distinct for long names that begin alike."""
    name = f"Fairway service {service}"
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 9]} {service_tag(service)}"


def _written(name: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(name)}"
    except ValueError:
        return f"DNS:{name}"


def _is_any(host: str) -> bool:
    return host in ("", "0.0.0.0", "::")
