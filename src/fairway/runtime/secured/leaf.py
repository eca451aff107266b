"""The certificate by which the operator knows a pod: asked of the operator, renewed before it ends, never on a disk.

Standard library only, Python 3.9 and newer. The pod proves itself by a token that its kubelet made for this pod and for the
operator. The operator makes key and certificate, and sends both over TLS, after the pod has verified it.
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

from fairway.runtime.pod import trust

PATH = "/v1/leaf"
TOKEN_FOLDER = "/var/run/secrets/fairway-operator"
TOKEN = f"{TOKEN_FOLDER}/token"
"""Where a kubelet keeps the pod's token current."""
SOONEST, LATEST = 1.0, 86400.0
"""Seconds until a certificate is renewed, at the least and at the most."""
LOOK = 60.0
"""Seconds between two looks whether the operator has another authority."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 15.0
"""Seconds until the operator is asked again when it did not answer: doubled each time."""
SILENCE = 10.0
"""Seconds without an answer after which a connection counts as broken."""
_LARGEST = 64 << 10


def token_of(path: str = TOKEN) -> str:
    """The pod's token. Raises `OSError` where there is none yet."""
    with open(path, encoding="ascii") as file:
        return file.read().strip()


def authority_of(path: str) -> str:
    """The operator's authority in a file, in PEM. Raises `OSError` where there is none yet."""
    with open(path, encoding="ascii") as file:
        return file.read()


def own_authority() -> str:
    """The operator's authority that the pod was made with, in PEM."""
    return os.environ.get(trust.AUTHORITY, "")


class Leaf:
    """The certificate that a server context shows. Before the first one came no handshake succeeds."""

    def __init__(self, url: str, token: Callable[[], str] = token_of, authority: Callable[[], str] = own_authority) -> None:
        """`url`: of the operator, without the path."""
        self._url = url.rstrip("/") + PATH
        self._token = token
        self._authority = authority
        self._trusted = ""
        """The authority by which the operator was verified last."""
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        """It stays the same when the certificate is renewed: connections that are open go on."""
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3

    async def keep(self) -> None:
        """Renew it for as long as this runs. While the operator does not answer it is asked again."""
        wait = FIRST_WAIT
        while True:
            try:
                after = await self.renew()
            except (OSError, http.client.HTTPException, ValueError) as error:
                _say(f"no certificate from {self._url}: {error}; asked again")
                await asyncio.sleep(wait)
                wait = min(LONGEST_WAIT, wait * 2)
            else:
                wait = FIRST_WAIT
                await self._until_due(after)

    async def renew(self) -> float:
        """Show a new certificate; seconds until the next one is due. Raises `OSError`, `HTTPException` or `ValueError`."""
        pem, after = _read(await _aside(self._ask))
        # In the thread of the event loop: a context must not change while a handshake begins.
        _show(self.context, pem)
        return min(LATEST, max(SOONEST, after))

    async def _until_due(self, after: float) -> None:
        """Wait; not on, where the operator has another authority: its next question would find an old certificate."""
        loop = asyncio.get_running_loop()
        due = loop.time() + after
        while (left := due - loop.time()) > 0 and not self._has_other_authority():
            await asyncio.sleep(min(LOOK, left))

    def _has_other_authority(self) -> bool:
        try:
            return self._authority() != self._trusted
        except OSError:
            return False

    def _ask(self) -> bytes:
        authority = self._trusted = self._authority()
        if not authority:
            raise OSError(f"no authority to verify the operator by: {trust.AUTHORITY} is empty")
        request = urllib.request.Request(self._url, b"", {"Authorization": "Bearer " + self._token()}, method="POST")
        if request.type != "https":
            raise ValueError(f"{self._url} is no https address: the key would cross the network in clear")
        try:
            with trust.urlopen(request, SILENCE, authority) as answer:
                body: bytes = answer.read(_LARGEST)
        except urllib.error.HTTPError as error:
            with error:
                words = error.read(_LARGEST).decode(errors="replace").strip()
            raise OSError(f"HTTP {error.code}: {words or error.reason}") from None
        return body


def _read(body: bytes) -> tuple[bytes, float]:
    """Key and certificate in PEM, and the seconds until the next are due."""
    said = json.loads(body)
    try:
        return str(said["pem"]).encode(), float(said["renew_after"])
    except (KeyError, TypeError) as error:
        raise ValueError("the operator's answer has no `pem` and `renew_after`") from error


def _show(context: ssl.SSLContext, pem: bytes) -> None:
    """The standard library takes files alone; this one lies in memory, and has no name."""
    file = os.memfd_create("fairway-leaf")
    try:
        os.write(file, pem)
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)


async def _aside(work: Callable[[], bytes]) -> bytes:
    """What `work` returns, in a thread that does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    came: asyncio.Future[bytes] = loop.create_future()

    def hand(result: bytes | None, error: Exception | None) -> None:
        if came.done():
            return
        if error is not None:
            came.set_exception(error)
        else:
            came.set_result(result or b"")

    def run() -> None:
        result, failed = None, None
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - it is raised where it is awaited
            failed = error
        with contextlib.suppress(RuntimeError):  # The loop is closed.
            loop.call_soon_threadsafe(hand, result, failed)

    threading.Thread(target=run, name="fairway-leaf", daemon=True).start()
    return await came


def _say(words: str) -> None:
    sys.stderr.write(f"fairway: {words}\n")
    sys.stderr.flush()
