"""The keys and certificates of a cluster, made by the `openssl` program. They are deleted with the cluster's folder."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_DAYS = "30"


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Authority:
    """The certificate authority that every component of a cluster trusts."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self.pair = self._pair("ca")
        if not self.pair.certificate.exists():
            _openssl(*_request(self.pair, "/CN=fairway-test-cluster"), "-addext", "keyUsage=critical,keyCertSign,cRLSign")

    def server(self, name: str, addresses: Sequence[str]) -> Pair:
        """Return a certificate for a server with these names and addresses (`DNS:localhost`, `IP:127.0.0.1`)."""
        return self._issue(name, f"/CN={name}", "serverAuth", "-addext", f"subjectAltName={','.join(addresses)}")

    def client(self, user: str, groups: Sequence[str] = ()) -> Pair:
        """Return a client certificate for this user and these groups."""
        subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
        return self._issue("-".join(("client", user, *groups)).replace(":", "-"), subject, "clientAuth")

    def bare(self, name: str) -> Pair:
        """Return a key pair without a certificate, for signing tokens: the public key, and the private key."""
        pair = self._pair(name)
        if not pair.certificate.exists():
            _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(pair.key))
            _openssl("pkey", "-in", str(pair.key), "-pubout", "-out", str(pair.certificate))
        return pair

    def _pair(self, name: str) -> Pair:
        return Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")

    def _issue(self, name: str, subject: str, usage: str, *more: str) -> Pair:
        pair = self._pair(name)
        if not pair.certificate.exists():
            signer = ("-CA", str(self.pair.certificate), "-CAkey", str(self.pair.key))
            _openssl(
                *_request(pair, subject),
                *signer,
                "-addext",
                "basicConstraints=CA:FALSE",
                "-addext",
                f"extendedKeyUsage={usage}",
                *more,
            )
        return pair


def _request(pair: Pair, subject: str) -> list[str]:
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    files = ("-keyout", str(pair.key), "-out", str(pair.certificate))
    return ["req", "-x509", *curve, *files, "-days", _DAYS, "-subj", subject]


def _openssl(*arguments: str) -> None:
    ended = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"openssl {' '.join(arguments)} failed: {ended.stderr}")
