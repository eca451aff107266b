"""Reads kubeconfig files and a pod's own files into a `ClusterTarget`. Errors name the file, the context and what is missing."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fairway.engines.kubernetes.client.cluster_target import ClusterTarget, ClusterUser, ExecPlugin, KeyMaterial
from fairway.errors import NotFoundError, UsageError
from fairway.units import suggestion

IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The folder of a pod with its token, the authority and its namespace."""

_INSTALLED_ELSEWHERE = "write an `exec` section instead of the `auth-provider`; kubectl has dropped those too"

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _KubeconfigEntry:
    """An entry of a kubeconfig, and the file that contains it."""

    content: Entry
    file: Path

    def path(self, key: str) -> Path | None:
        """Return a path in the entry; a relative path is relative to the kubeconfig."""
        text = self.content.get(key)
        return self.file.parent / str(text) if text else None


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """All files together. Of two entries of one name that of the first file counts, as for kubectl."""

    files: tuple[Path, ...]
    current: str
    contexts: Mapping[str, _KubeconfigEntry]
    clusters: Mapping[str, _KubeconfigEntry]
    users: Mapping[str, _KubeconfigEntry]

    def target(self, context: str = "") -> ClusterTarget:
        """Return the target of a context; without a name, of the current context."""
        name = context or self.current
        if not name:
            message = f"{self._files} has no current-context; it has {_listed(self.contexts)}"
            raise UsageError(message, fix="name one with --context, or choose one with `kubectl config use-context`")
        entry = self._entry(self.contexts, "context", name, f"named by {'the caller' if context else 'current-context'}")
        cluster = self._entry(self.clusters, "cluster", str(entry.content.get("cluster") or ""), f"of context {name!r}")
        named_user = str(entry.content.get("user") or "")
        user = self._entry(self.users, "user", named_user, f"of context {name!r}") if named_user else None
        return _target(name, entry, cluster, _user(user, named_user) if user else ClusterUser())

    def _entry(self, entries: Mapping[str, _KubeconfigEntry], what: str, name: str, where: str) -> _KubeconfigEntry:
        if name in entries:
            return entries[name]
        similar = suggestion.nearest(name, tuple(entries))
        message = f"{self._files} has no {what} {name!r} ({where}); it has {_listed(entries)}"
        raise NotFoundError(message, fix=f"did you mean {similar!r}?" if similar else f"name a {what} that exists")

    @property
    def _files(self) -> str:
        return ", ".join(map(str, self.files))


def find(environ: Mapping[str, str], *, context: str = "", kubeconfig: str = "", home: Path | None = None) -> ClusterTarget:
    """Return the cluster that kubectl would use: from a kubeconfig if there is one, otherwise the cluster of this pod."""
    named = kubeconfig or environ.get("KUBECONFIG", "")
    files = [Path(part).expanduser() for part in named.split(":") if part] or [(home or Path.home()) / ".kube" / "config"]
    existing = [file for file in files if file.exists()]
    if existing:
        return read_kubeconfig(*existing).target(context)
    if not named and not context and "KUBERNETES_SERVICE_HOST" in environ:
        return in_cluster(environ)
    message = f"there is no kubeconfig: {', '.join(map(str, files))} does not exist"
    raise NotFoundError(message, fix="set KUBECONFIG to an existing file, or use the local engine: `fairway use local`")


def read_kubeconfig(*files: Path) -> Kubeconfig:
    """Read and merge kubeconfig files."""
    current, merged = "", {"contexts": {}, "clusters": {}, "users": {}}  # type: tuple[str, dict[str, dict[str, _KubeconfigEntry]]]
    for file in files:
        content = _yaml(file)
        current = current or str(content.get("current-context") or "")
        for section, entries in merged.items():
            for name, entry in _entries(file, content, section):
                entries.setdefault(name, _KubeconfigEntry(entry, file.absolute()))
    return Kubeconfig(files, current, **merged)


def in_cluster(environ: Mapping[str, str], folder: Path = IN_POD) -> ClusterTarget:
    """Return the cluster of this pod, with the pod's service account."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        message = "KUBERNETES_SERVICE_HOST is not set: this process does not run in a pod"
        raise NotFoundError(message, fix="give it a kubeconfig with KUBECONFIG or --kubeconfig")
    token, authority, namespace = folder / "token", folder / "ca.crt", folder / "namespace"
    for file in (token, authority):
        if not file.exists():
            message = f"{file} does not exist: the pod has no service account token"
            raise NotFoundError(message, fix="set automountServiceAccountToken: true and a serviceAccountName in the pod")
    return ClusterTarget(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        user=ClusterUser(token_file=token),
        authority=KeyMaterial(file=authority),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )


def _yaml(file: Path) -> Entry:
    try:
        content = yaml.load(file.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except OSError as error:
        message = f"{file} cannot be read: {error.strerror}"
        raise NotFoundError(message, fix="check the path and its permissions") from error
    except yaml.YAMLError as error:
        message = f"{file} is not YAML: {' '.join(str(error).split())}"
        raise UsageError(message, fix="correct the file, or name another with KUBECONFIG") from error
    if not isinstance(content, dict):
        message = f"{file} is not a kubeconfig: it holds {type(content).__name__}, not a map"
        raise UsageError(message, fix="name a kubeconfig with KUBECONFIG")
    return content


def _entries(file: Path, content: Entry, section: str) -> list[tuple[str, Entry]]:
    named = []
    key = section.removesuffix("s")
    for number, entry in enumerate(content.get(section) or ()):
        if not isinstance(entry, dict) or not entry.get("name"):
            message = f"{file}: {section}[{number}] has no name"
            raise UsageError(message, fix=f"write `- name: NAME` and `{key}: ...` under it")
        named.append((str(entry["name"]), entry.get(key) or {}))
    return named


def _target(name: str, context: _KubeconfigEntry, cluster: _KubeconfigEntry, user: ClusterUser) -> ClusterTarget:
    server = str(cluster.content.get("server") or "").rstrip("/")
    if not server.startswith(("https://", "http://")):
        message = f"{cluster.file}: the cluster of context {name!r} has the server {server!r}, which is not a URL"
        raise UsageError(message, fix="write for example server: https://10.0.0.1:6443")
    return ClusterTarget(
        server=server,
        user=user,
        authority=_material(cluster, "certificate-authority", f"the cluster of context {name!r}"),
        insecure=bool(cluster.content.get("insecure-skip-tls-verify")),
        server_name=str(cluster.content.get("tls-server-name") or ""),
        proxy=str(cluster.content.get("proxy-url") or ""),
        namespace=str(context.content.get("namespace") or "default"),
        context=name,
    )


def _user(entry: _KubeconfigEntry, name: str) -> ClusterUser:
    content, where = entry.content, f"the user {name!r}"
    if "auth-provider" in content:
        message = f"{entry.file}: {where} uses the auth-provider {content['auth-provider'].get('name')!r}"
        raise UsageError(message, fix=_INSTALLED_ELSEWHERE)
    certificate, key = (_material(entry, part, where) for part in ("client-certificate", "client-key"))
    if bool(certificate) != bool(key):
        present, missing = ("client-certificate", "client-key") if certificate else ("client-key", "client-certificate")
        message = f"{entry.file}: {where} has a {present} and no {missing}"
        raise UsageError(message, fix=f"add {missing} or {missing}-data")
    return ClusterUser(
        certificate=certificate,
        key=key,
        token=str(content.get("token") or ""),
        token_file=entry.path("tokenFile"),
        username=str(content.get("username") or ""),
        password=str(content.get("password") or ""),
        plugin=_plugin(entry, where) if content.get("exec") else None,
        impersonate=str(content.get("as") or ""),
        impersonate_groups=tuple(map(str, content.get("as-groups") or ())),
    )


def _plugin(entry: _KubeconfigEntry, where: str) -> ExecPlugin:
    section = entry.content["exec"]
    command, version = str(section.get("command") or ""), str(section.get("apiVersion") or "")
    if not command:
        message = f"{entry.file}: {where} has an exec section without a command"
        raise UsageError(message, fix="name the program that prints the credentials")
    if version not in ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"):
        message = f"{entry.file}: {where} has an exec section of the apiVersion {version!r}"
        raise UsageError(message, fix="write apiVersion: client.authentication.k8s.io/v1")
    return ExecPlugin(
        command=command,
        arguments=tuple(map(str, section.get("args") or ())),
        env=tuple((str(item["name"]), str(item["value"])) for item in section.get("env") or ()),
        api_version=version,
        hint=str(section.get("installHint") or "").strip(),
        cluster_info=bool(section.get("provideClusterInfo")),
        interactive=str(section.get("interactiveMode") or "IfAvailable"),
        folder=entry.file.parent,
    )


def _material(entry: _KubeconfigEntry, key: str, where: str) -> KeyMaterial:
    """Return the entry's data or file. `KEY-data` has precedence over `KEY`, as for kubectl."""
    text = entry.content.get(f"{key}-data")
    if text:
        try:
            return KeyMaterial(data=base64.b64decode("".join(str(text).split()), validate=True))
        except ValueError as error:
            message = f"{entry.file}: {key}-data of {where} is not base64: {error}"
            raise UsageError(message, fix="copy it again, or name a file with " + key) from error
    file = entry.path(key)
    if file and not file.exists():
        message = f"{entry.file}: {key} of {where} names {file}, which does not exist"
        raise NotFoundError(message, fix=f"put it there, or write {key}-data")
    return KeyMaterial(file=file)


def _listed(entries: Mapping[str, object]) -> str:
    return ", ".join(sorted(entries)) or "none"
