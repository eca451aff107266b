"""The credentials of a client: headers and TLS context of its requests, renewed before they expire."""

from __future__ import annotations

import asyncio
import base64
import datetime
import json
import os
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairway.engines.kubernetes.client.cluster_target import ClusterTarget, ExecPlugin
from fairway.errors import DeniedError, NotFoundError, UsageError

if TYPE_CHECKING:
    # Every command that contacts a cluster imports this module, and that import would double its cost.
    from fairway.app.port.port import Clock

REREAD = 60.0
"""Seconds after which token and certificate files are read again: the kubelet renews them in place."""
_EARLY = 30.0
"""Seconds before their expiry at which a plug-in's credentials are requested again."""
_PLUGIN_LIMIT = 60.0
"""Timeout in seconds for a plug-in; it may open a browser, so it is generous."""


class ClientCredentials:
    """The credentials for the API server. `headers` and `tls` are the current ones; call `refresh` when `stale`."""

    def __init__(self, target: ClusterTarget, clock: Clock) -> None:
        self._target = target
        self._clock = clock
        self._until = float("-inf")
        self._renewing = asyncio.Lock()
        self._pem: tuple[bytes, ...] = ()
        self.headers: Mapping[str, str] = {}
        self.tls: ssl.SSLContext | bool = True

    @property
    def stale(self) -> bool:
        """Whether the credentials should be refreshed before use."""
        return self._clock.now() >= self._until

    async def refresh(self, *, refused: bool = False) -> None:
        """Read the files again, or run the plug-in. `refused`: the API server did not accept the current credentials."""
        async with self._renewing:
            if not refused and not self.stale:
                return
            user = self._target.user
            # A plug-in is a program and slow; concurrent callers wait here and use its result.
            credential = await _ask(user.plugin, self._target) if user.plugin else {}
            self.headers = self._headers(credential)
            self._load(credential)
            self._until = self._end(credential)

    async def renewed(self) -> bool:
        """Get new credentials after the API server has refused the current ones. Returns whether there is a source for them."""
        user = self._target.user
        if user.plugin or user.token_file or user.certificate.file:
            await self.refresh(refused=True)
            return True
        return False

    def _headers(self, given: Mapping[str, Any]) -> Mapping[str, str]:
        user, headers = self._target.user, {}
        token = user.token
        if user.token_file:
            token = _text(user.token_file)
        token = str(given.get("token") or token)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        elif user.username:
            pair = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
            headers["Authorization"] = f"Basic {pair}"
        if user.impersonate:
            headers["Impersonate-User"] = user.impersonate
        for number, group in enumerate(user.impersonate_groups):
            if number:
                message = f"context {self._target.context!r} impersonates more than one group"
                raise UsageError(message, fix="keep one under `as-groups`")
            headers["Impersonate-Group"] = group
        return headers

    def _load(self, given: Mapping[str, Any]) -> None:
        user = self._target.user
        certificate = str(given.get("clientCertificateData") or "").encode() or user.certificate.read()
        key = str(given.get("clientKeyData") or "").encode() or user.key.read()
        pem = (self._target.authority.read(), certificate, key)
        if self._target.server.startswith("https://") and (pem != self._pem or self.tls is True):
            self.tls = tls_context(*pem, insecure=self._target.insecure)
            self._pem = pem

    def _end(self, given: Mapping[str, Any]) -> float:
        user, now = self._target.user, self._clock.now()
        if user.plugin:
            end = given.get("expirationTimestamp")
            return datetime.datetime.fromisoformat(str(end)).timestamp() - _EARLY if end else float("inf")
        files = (user.token_file, user.certificate.file, user.key.file, self._target.authority.file)
        return now + REREAD if any(files) else float("inf")


def tls_context(authority: bytes, certificate: bytes = b"", key: bytes = b"", *, insecure: bool = False) -> ssl.SSLContext:
    """Return a TLS context that trusts this authority (or the system's), with this client certificate."""
    try:
        context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    except (ssl.SSLError, UnicodeDecodeError) as error:
        message = f"the certificate authority of the cluster is not a PEM certificate: {error}"
        raise UsageError(message, fix="get certificate-authority-data again from the administrator of the cluster") from error
    # Go accepts authorities without the extensions that this flag requires. They work with kubectl, so they must work here.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate:
        _show(context, certificate, key)
    return context


def _show(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    # The standard library loads certificates from files only; mkstemp creates one that other users cannot read.
    descriptor, path = tempfile.mkstemp(prefix="fairway-tls-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(key + b"\n" + certificate)
        context.load_cert_chain(path)
    except ssl.SSLError as error:
        message = f"the client certificate and its key do not work together: {error}"
        raise UsageError(message, fix="get both again from the administrator of the cluster") from error
    finally:
        Path(path).unlink()


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError as error:
        message = f"the token file {file} cannot be read: {error.strerror}"
        raise NotFoundError(message, fix="put a token there, or correct the kubeconfig") from error


async def _ask(plugin: ExecPlugin, target: ClusterTarget) -> Mapping[str, Any]:
    """Run the plug-in and parse its output."""
    if plugin.interactive == "Always":
        message = f"the credential program {plugin.command!r} of context {target.context!r} needs a terminal"
        raise DeniedError(message, fix="log in with kubectl first and use a context whose program is not interactive")
    command = plugin.command
    if "/" in command and not command.startswith("/"):
        command = str(plugin.folder / command)
    info = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": _told(plugin, target)}
    env = {**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": json.dumps(info)}
    try:
        process = await asyncio.create_subprocess_exec(
            command, *plugin.arguments, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
        )
    except OSError as error:
        message = f"the credential program {command!r} of context {target.context!r} cannot be started: {error.strerror}"
        raise NotFoundError(message, fix=plugin.hint or "install it, or use another context") from error
    try:
        async with asyncio.timeout(_PLUGIN_LIMIT):
            printed, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        message = f"the credential program {command!r} of context {target.context!r} took longer than {_PLUGIN_LIMIT:g} s"
        raise DeniedError(message, fix="run it by hand to see what it waits for") from None
    if process.returncode:
        message = f"the credential program {command!r} of context {target.context!r} ended with {process.returncode}"
        raise DeniedError(message, fix="log in again; its output is shown above")
    return read_credential(printed, plugin, target.context)


def _told(plugin: ExecPlugin, target: ClusterTarget) -> dict[str, Any]:
    spec: dict[str, Any] = {"interactive": False}
    if plugin.cluster_info:
        authority = base64.b64encode(target.authority.read()).decode()
        spec["cluster"] = {"server": target.server, "certificate-authority-data": authority}
        spec["cluster"].update({"tls-server-name": target.server_name} if target.server_name else {})
    return spec


def read_credential(printed: bytes, plugin: ExecPlugin, context: str) -> Mapping[str, Any]:
    """Return the status of the `ExecCredential` in a plug-in's output."""
    try:
        credential = json.loads(printed)
        status = credential["status"]
        fits = credential["apiVersion"] == plugin.api_version and bool(status.get("token") or status.get("clientCertificateData"))
    except (ValueError, KeyError, TypeError, AttributeError):
        fits = False
    if not fits:
        message = (
            f"the credential program {plugin.command!r} of context {context!r} printed no ExecCredential of {plugin.api_version}"
        )
        raise DeniedError(message, fix="run it by hand and check its output")
    result: Mapping[str, Any] = status
    return result
