"""The certificate with which a pod authenticates itself to the operator.

The pod requests it from the operator and renews it before it expires; it is never written to a disk. The pod authenticates the
request with a token that its kubelet issued for this pod and the operator. The operator creates key and certificate and sends
both over TLS, after the pod has verified the operator. Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import ssl
import sys
import threading
import urllib.error
import urllib.request
from typing import Callable

from fairway.runtime.pod import operator_tls

PATH = "/v1/leaf"
TOKEN_FOLDER = "/var/run/secrets/fairway-operator"
TOKEN = f"{TOKEN_FOLDER}/token"
"""File in which the kubelet keeps the pod's token up to date."""
SOONEST, LATEST = 1.0, 86400.0
"""Minimum and maximum seconds until a certificate is renewed."""
LOOK = 60.0
"""Interval in seconds between checks whether the operator's authority has changed."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 15.0
"""First and maximum delay in seconds before a failed request is retried; doubled each time."""
SILENCE = 10.0
"""Seconds without a response after which a connection counts as broken."""
_LARGEST = 64 << 10


def token_of(path: str = TOKEN) -> str:
    """Return the pod's token. Raises `OSError` if there is none yet."""
    with open(path, encoding="ascii") as file:
        return file.read().strip()


def authority_of(path: str) -> str:
    """Return the operator's authority from a file, in PEM. Raises `OSError` if there is none yet."""
    with open(path, encoding="ascii") as file:
        return file.read()


def own_authority() -> str:
    """Return the operator's authority with which the pod was created, in PEM."""
    return os.environ.get(operator_tls.AUTHORITY, "")


class PodCertificate:
    """The certificate of a server context. Before the first one is issued, no handshake succeeds."""

    def __init__(self, url: str, token: Callable[[], str] = token_of, authority: Callable[[], str] = own_authority) -> None:
        """`url`: the operator's endpoint, without the path."""
        self._url = url.rstrip("/") + PATH
        self._token = token
        self._authority = authority
        self._trusted = ""
        """The authority with which the operator was verified last."""
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        """It stays the same object when the certificate is renewed, so open connections are not affected."""
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3

    async def keep(self) -> None:
        """Renew the certificate until cancelled. Failed requests are retried."""
        wait = FIRST_WAIT
        while True:
            try:
                delay = await self.renew()
            except (OSError, http.client.HTTPException, ValueError) as error:
                _say(f"no certificate from {self._url}: {error}; retrying")
                await asyncio.sleep(wait)
                wait = min(LONGEST_WAIT, wait * 2)
            else:
                wait = FIRST_WAIT
                await self._until_due(delay)

    async def renew(self) -> float:
        """Install a new certificate; return the seconds until the next one is due.

        Raises `OSError`, `HTTPException` or `ValueError`.
        """
        pem, delay = _read(await _aside(self._ask))
        # In the thread of the event loop, because a context must not change while a handshake begins.
        _show(self.context, pem)
        return min(LATEST, max(SOONEST, delay))

    async def _until_due(self, after: float) -> None:
        """Wait until the certificate is due, or until the operator's authority changes: the old certificate is not valid then."""
        loop = asyncio.get_running_loop()
        due = loop.time() + after
        while (remaining := due - loop.time()) > 0 and not self._has_other_authority():
            await asyncio.sleep(min(LOOK, remaining))

    def _has_other_authority(self) -> bool:
        try:
            return self._authority() != self._trusted
        except OSError:
            return False

    def _ask(self) -> bytes:
        authority = self._trusted = self._authority()
        if not authority:
            raise OSError(f"no authority to verify the operator with: {operator_tls.AUTHORITY} is empty")
        request = urllib.request.Request(self._url, b"", {"Authorization": "Bearer " + self._token()}, method="POST")
        if request.type != "https":
            raise ValueError(f"{self._url} is not an https address: the key would cross the network unencrypted")
        try:
            with operator_tls.urlopen(request, SILENCE, authority) as answer:
                body: bytes = answer.read(_LARGEST)
        except urllib.error.HTTPError as error:
            with error:
                detail = error.read(_LARGEST).decode(errors="replace").strip()
            raise OSError(f"HTTP {error.code}: {detail or error.reason}") from None
        return body


def _read(body: bytes) -> tuple[bytes, float]:
    """Return key and certificate in PEM, and the seconds until the next are due."""
    answer = json.loads(body)
    try:
        return str(answer["pem"]).encode(), float(answer["renew_after"])
    except (KeyError, TypeError) as error:
        raise ValueError("the operator's answer has no `pem` and `renew_after`") from error


def _show(context: ssl.SSLContext, pem: bytes) -> None:
    """Load the certificate from an anonymous file in memory, because the standard library accepts only files."""
    file = os.memfd_create("fairway-leaf")
    try:
        os.write(file, pem)
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)


async def _aside(work: Callable[[], bytes]) -> bytes:
    """Run `work` in a daemon thread, which does not keep the process alive, and return its result."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[bytes] = loop.create_future()

    def hand(result: bytes | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result or b"")

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - it is raised where it is awaited
            failure = error
        with contextlib.suppress(RuntimeError):  # The loop is closed.
            loop.call_soon_threadsafe(hand, result, failure)

    threading.Thread(target=run, name="fairway-leaf", daemon=True).start()
    return await future


def _say(words: str) -> None:
    sys.stderr.write(f"fairway: {words}\n")
    sys.stderr.flush()
