"""Asking again when an answer was lost: a request that changes something carries a key, and with the same key it is done once.

Lost means that the request was sent and no whole answer came: the daemon was killed, the connection was cut, the time was up.
An answer that says no is an answer, and is not asked for again. A daemon that does not know keys is not asked again either.
"""

from __future__ import annotations

import os
import time

from fairway.errors import NotFoundError
from fairway.sdk import wire
from fairway.sdk.wire import LostAnswerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from fairway.sdk.cluster import Cluster
    from fairway.sdk.daemon import Daemon

PAUSES = (0.0, 0.2, 1.0)
"""Seconds before each further try."""
KEY = "key"
"""The query value that carries a key."""


def make_key() -> str:
    """A key for one thing that a user wants; no other has it."""
    return os.urandom(16).hex()


class Patience:
    """How often, and for how long, a lost answer is asked for again."""

    def __init__(self, seconds: float) -> None:
        """`seconds` after the first loss there is no further try, but always one."""
        self._seconds, self._began = seconds, 0.0
        self.first: LostAnswerError | None = None
        """How the first was lost."""
        self._tries = 0

    def after(self, error: LostAnswerError) -> float:
        """Seconds until the next try; raises the first error when there is none."""
        if self.first is None:
            self.first, self._began = error, time.monotonic()
        elif self._tries == len(PAUSES) or time.monotonic() - self._began > self._seconds:
            raise self.first
        self._tries += 1
        return PAUSES[self._tries - 1]

    def check(self, *, back: bool) -> None:
        """Raise the first error unless it may be asked again."""
        if not back and self.first is not None:
            raise self.first


def persist(ask: Callable[[], bytes], daemon: Daemon | Cluster, method: str, path: str, namespace: str) -> bytes:
    """The answer to a request that is done once however often it is sent; asked for again while it is lost."""
    patience = Patience(daemon.patience)
    while True:
        try:
            return ask()
        except LostAnswerError as error:
            pause = patience.after(error)
        except NotFoundError:
            if method == "DELETE" and patience.first is not None:
                return deleted(path)
            raise
        time.sleep(pause)
        patience.check(back=may_ask_again(daemon, namespace))


def may_ask_again(daemon: Daemon | Cluster, namespace: str) -> bool:
    """Wait until the daemon answers again, and say whether it does requests with a key once."""
    daemon.start()
    try:
        reply = daemon.request("GET", "/v1/health", {"namespace": namespace})
    except LostAnswerError:
        return True  # It died again: the next try finds out.
    reply.close()
    return wire.KEYS_HEADER in reply.headers


def deleted(path: str) -> bytes:
    """The answer of a delete whose own was lost: what is not found when it is asked for again is deleted."""
    import json
    from urllib.parse import unquote

    return json.dumps({"deleted": [unquote(path.rsplit("/", 1)[-1])]}).encode()
