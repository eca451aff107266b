"""Which cluster, and as whom: what a kubeconfig or a pod's own files come to. Data; `config` reads it, `identity` uses it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Material:
    """A certificate or a key: in a file, or as it stands in the kubeconfig."""

    file: Path | None = None
    data: bytes = b""

    def read(self) -> bytes:
        """The content; a file is read anew each time, since certificates are renewed in place."""
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
    """How to install the program, in the words of whoever wrote the kubeconfig."""
    cluster_info: bool = False
    """Whether the program is told about the cluster."""
    interactive: str = "IfAvailable"
    folder: Path = Path()
    """Where a relative command lies."""


@dataclass(frozen=True, slots=True)
class User:
    """As whom."""

    certificate: Material = Material()
    key: Material = Material()
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    """Read anew every minute."""
    username: str = ""
    password: str = field(default="", repr=False)
    plugin: ExecPlugin | None = None
    impersonate: str = ""
    impersonate_groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """Which cluster, and as whom."""

    server: str
    """`https://HOST:PORT`, without a slash at the end."""
    user: User = User()
    authority: Material = Material()
    """Who signed the API server's certificate; none means whom the system trusts."""
    insecure: bool = False
    """Whether the API server's certificate is not checked."""
    server_name: str = ""
    """The name in the API server's certificate, where it is not that of its address."""
    proxy: str = ""
    namespace: str = "default"
    """Where things are looked for when nobody says."""
    context: str = ""
    """How people call it; empty inside the cluster."""
