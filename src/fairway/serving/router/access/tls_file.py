"""The TLS of a port: its versions, its certificate, and the files, which are read again when they change."""

from __future__ import annotations

import os
import ssl
import stat
from pathlib import Path

from fairway.serving.router.access.certificate import ParsedCertificate, read_certificate
from fairway.state.serving.access import TlsRule

ALPN = ("h2", "http/1.1")
"""The protocols offered to clients, the preferred one first. Code that serves another one adds its name here."""
WARN_SECONDS = 14 * 86400.0
"""How long before a certificate ends the service reports it, in seconds."""
_STAMP = tuple[tuple[int, int, int], tuple[int, int, int]]


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return a context for TLS 1.2 and newer. Raises `OSError` (such as `ssl.SSLError`) or `ValueError` for unusable files."""

    def no_password() -> str:
        message = f"the key {key} is encrypted, and its password cannot be entered"
        raise ValueError(message)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Renegotiation lets a client cause endless work for the server (TLS 1.2; 1.3 has none).
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.load_cert_chain(certificate, key, no_password)
    context.set_alpn_protocols(list(ALPN))
    return context


class PortTlsFiles:
    """The certificate of a port as it is on disk. New connections use a changed one; existing connections keep theirs."""

    def __init__(self) -> None:
        self.context: ssl.SSLContext | None = None
        """The context of new connections; None while there is no usable certificate."""
        self.problem = ""
        """Why the current files cannot be used; the previous ones stay in use."""
        self._rule: TlsRule | None = None
        self._stamp: _STAMP | None = None

    def follow(self, rule: TlsRule | None) -> None:
        """Use these files from now on. Without a rule no files are used."""
        if rule != self._rule:
            # Another document names other files: the previous certificate must not stand in for them.
            self._rule, self._stamp, self.context, self.problem = rule, None, None, ""
        self.look()

    def look(self) -> None:
        """Read the files again if they have changed, or could not be used before."""
        rule = self._rule
        if rule is None:
            return
        certificate, key = Path(rule.certificate), Path(rule.key)
        try:
            stamp = (_stamp(certificate), _stamp(key))
            if stamp == self._stamp:
                return
            self.context = server_context(certificate, key)
        except (OSError, ValueError) as problem:
            # While a pair is being replaced, certificate and key may not match. The next call tries again.
            self.problem = str(problem)
            return
        self._stamp, self.problem = stamp, ""


def check_files(rule: TlsRule, now: float) -> list[str]:
    """Return what is wrong with a certificate and its key, each with its fix; empty if they can protect a port."""
    certificate, key = Path(rule.certificate), Path(rule.key)
    problems: list[str] = []
    readable: ParsedCertificate | None = None
    try:
        readable = read_certificate(certificate)
    except OSError as problem:
        problems.append(f"the certificate {certificate} cannot be read ({problem.strerror}): correct endpoint.tls.certificate")
    except ValueError as problem:
        problems.append(f"the certificate {certificate} {problem}: give a PEM file")
    if readable is not None and readable.ends <= now:
        problems.append(f"the certificate {certificate} has expired: renew it, or use tls: self-signed")
    if readable is not None and readable.begins > now:
        problems.append(f"the certificate {certificate} is not valid yet: check this machine's clock, or wait")
    try:
        mode = key.stat().st_mode
        if stat.S_IMODE(mode) & 0o027:
            problems.append(f"the key {key} can be read or changed by other users: chmod 600 {key}")
    except OSError as problem:
        problems.append(f"the key {key} cannot be read ({problem.strerror}): correct endpoint.tls.key")
    if not problems:
        problems += _mismatch(certificate, key)
    return problems


def _mismatch(certificate: Path, key: Path) -> list[str]:
    try:
        server_context(certificate, key)
    except ssl.SSLError as problem:
        if "KEY_VALUES_MISMATCH" in str(problem):
            return [f"the key {key} does not belong to the certificate {certificate}: give a key and a certificate that match"]
        return [f"the key {key} or the certificate {certificate} cannot be used ({problem}): give a pair in PEM"]
    except (OSError, ValueError) as problem:
        return [f"{problem}: give a key without a password"]
    return []


def _stamp(path: Path) -> tuple[int, int, int]:
    status = os.stat(path)
    return status.st_ino, status.st_size, status.st_mtime_ns
