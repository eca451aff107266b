"""Retries of requests whose reply was lost: a request that changes something carries a key, and takes effect once per key.

Lost means that the request was sent and no complete reply arrived: the daemon was killed, the connection was cut, or a
timeout expired. A refusal is a reply and is not retried. Requests to a daemon that does not support keys are not retried.
"""

from __future__ import annotations

import os
import time

from fairway.errors import NotFoundError
from fairway.sdk.transport import http
from fairway.sdk.transport.http import LostReplyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from fairway.sdk.transport.cluster import ClusterConnection
    from fairway.sdk.transport.daemon import DaemonConnection

PAUSES = (0.0, 0.2, 1.0)
"""Pauses before each retry, in seconds."""
KEY = "key"
"""The query parameter that carries the key."""


def make_key() -> str:
    """Return a new random key for one operation."""
    return os.urandom(16).hex()


class RetryBudget:
    """The limits of retries: their number and their total duration."""

    def __init__(self, seconds: float) -> None:
        """No retry begins later than `seconds` after the first loss, except that there is always one."""
        self._seconds, self._began = seconds, 0.0
        self.first: LostReplyError | None = None
        """The error of the first loss."""
        self._tries = 0

    def after(self, error: LostReplyError) -> float:
        """Return the pause before the next retry in seconds; raise the first error if there is none."""
        if self.first is None:
            self.first, self._began = error, time.monotonic()
        elif self._tries == len(PAUSES) or time.monotonic() - self._began > self._seconds:
            raise self.first
        self._tries += 1
        return PAUSES[self._tries - 1]

    def check(self, *, back: bool) -> None:
        """Raise the first error unless `back`: the daemon answers again and a retry is safe."""
        if not back and self.first is not None:
            raise self.first


def persist(
    ask: Callable[[], bytes], daemon: DaemonConnection | ClusterConnection, method: str, path: str, namespace: str
) -> bytes:
    """Return the reply to a request that takes effect only once; retry while its reply is lost."""
    patience = RetryBudget(daemon.patience)
    while True:
        try:
            return ask()
        except LostReplyError as error:
            pause = patience.after(error)
        except NotFoundError:
            if method == "DELETE" and patience.first is not None:
                return deleted(path)
            raise
        time.sleep(pause)
        patience.check(back=may_ask_again(daemon, namespace))


def may_ask_again(daemon: DaemonConnection | ClusterConnection, namespace: str) -> bool:
    """Wait until the daemon answers again; return whether it supports idempotency keys."""
    daemon.start()
    try:
        reply = daemon.request("GET", "/v1/health", {"namespace": namespace})
    except LostReplyError:
        return True  # The daemon died again: the next try shows whether it returns.
    reply.close()
    return http.KEYS_HEADER in reply.headers


def deleted(path: str) -> bytes:
    """Return the reply of a delete whose own reply was lost: not found at the retry means deleted."""
    import json
    from urllib.parse import unquote

    return json.dumps({"deleted": [unquote(path.rsplit("/", 1)[-1])]}).encode()
