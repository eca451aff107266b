"""A cluster and the credentials for it, as read from a kubeconfig or a pod's own files by `config`, and used by `identity`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """A certificate or a key: in a file, or inline in the kubeconfig."""

    file: Path | None = None
    data: bytes = b""

    def read(self) -> bytes:
        """Return the content; a file is read each time, since certificates are renewed in place."""
        return self.file.read_bytes() if self.file else self.data

    def __bool__(self) -> bool:
        return bool(self.file or self.data)


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A program that prints credentials."""

    command: str
    arguments: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    api_version: str = "client.authentication.k8s.io/v1"
    hint: str = ""
    """Instructions for installing the program, from the kubeconfig."""
    cluster_info: bool = False
    """Whether the program gets the data of the cluster."""
    interactive: str = "IfAvailable"
    folder: Path = Path()
    """The folder to which a relative command is relative."""


@dataclass(frozen=True, slots=True)
class ClusterUser:
    """The credentials of a client."""

    certificate: KeyMaterial = KeyMaterial()
    key: KeyMaterial = KeyMaterial()
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    """Read again every minute."""
    username: str = ""
    password: str = field(default="", repr=False)
    plugin: ExecPlugin | None = None
    impersonate: str = ""
    impersonate_groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterTarget:
    """A cluster, and the credentials for it."""

    server: str
    """`https://HOST:PORT`, without a slash at the end."""
    user: ClusterUser = ClusterUser()
    authority: KeyMaterial = KeyMaterial()
    """The authority of the API server's certificate; empty: those that the system trusts."""
    insecure: bool = False
    """Whether the API server's certificate is not verified."""
    server_name: str = ""
    """The name in the API server's certificate, where it is not that of its address."""
    proxy: str = ""
    namespace: str = "default"
    """The default namespace."""
    context: str = ""
    """The context's name in the kubeconfig; empty inside the cluster."""
