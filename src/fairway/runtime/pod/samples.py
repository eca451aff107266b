"""`python -m fairway.runtime.pod.samples --folder FOLDER --url URL`: brings the requests that a replica samples to the operator.

It runs beside the replica, in the same pod, and ends after it. Each complete file is sent, the oldest first, and removed when the
operator has answered that it is on its disk. While the operator is away files wait; the replica removes the oldest when they are
too many. Told to end, which a kubelet does when the replica is over, it also sends what the replica was writing, as far as whole
requests go. Standard library only, Python 3.9 and newer. The token is in `FAIRWAY_GIVEN_TOKEN`.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO, Callable

from fairway.runtime.growing import whole_lines
from fairway.runtime.pod import fetch
from fairway.runtime.pod.putting import put

EVERY = 1.0
"""Seconds between two looks."""
LONGEST = 30.0
"""Seconds between two tries, at the most."""
PATIENCE = 20.0
"""Seconds for which what is left is tried to be sent: meanwhile nobody else has what the pod had."""
SILENCE = 10.0
"""Seconds without an answer after which a connection counts as broken."""
COMPLETE = ".jsonl"
HALF = ".jsonl.part"
MEDIA_TYPE = "application/jsonl"
_BLOCK = 1 << 20
_TO_END = (signal.SIGTERM, signal.SIGINT)


class Sending:
    """Sends what lies in a folder."""

    def __init__(self, folder: str, url: str, token: str) -> None:
        self._folder = folder
        self._url = url
        self._token = token
        self._unwanted: set[str] = set()
        """What the operator refused: sent again it would be refused again."""

    def run(self, told: Callable[[float], bool], pause: Callable[[float], None] = time.sleep) -> bool:
        """Send until told to end, and then what is left; whether everything is sent. `told` waits for so many seconds."""
        wait = EVERY
        while not told(wait):
            wait = EVERY if self.send(COMPLETE) else min(LONGEST, wait * 2)
        end = time.monotonic() + PATIENCE
        while not self.send(COMPLETE, HALF):
            if time.monotonic() + EVERY > end:
                return False
            pause(EVERY)
        return not self._unwanted

    def send(self, *endings: str) -> bool:
        """Send the files that end so, the oldest first; False when one could not be sent, and may be later."""
        try:
            names = sorted(name for name in os.listdir(self._folder) if name.endswith(endings))
        except FileNotFoundError:
            return True
        return all(self._send(name) for name in names if name not in self._unwanted)

    def _send(self, name: str) -> bool:
        path = os.path.join(self._folder, name)
        try:
            with open(path, "rb") as file:
                size = whole_lines(file.fileno())
                if size:
                    sent_as = name[: -len(HALF)] + COMPLETE if name.endswith(HALF) else name
                    put(f"{self._url}/{sent_as}", self._token, _blocks(file, size), size, MEDIA_TYPE, SILENCE)
            os.unlink(path)
        except FileNotFoundError:
            return True  # The replica has made room.
        except fetch.RefusedError as error:
            _say(f"the operator does not take {name}: {error}")
            if error.missing:
                return False  # It may not know of this pod yet.
            self._unwanted.add(name)
        except OSError as error:
            _say(f"{name} is not with the operator yet: {error}")
            return False
        return True


def _blocks(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size > 0:
        block = file.read(min(_BLOCK, size))
        if not block:
            raise OSError("the file has become shorter")
        size -= len(block)
        yield block


def _say(words: str) -> None:
    sys.stderr.write(f"fairway: {words}\n")
    sys.stderr.flush()


def main(arguments: list[str] | None = None) -> int:
    """Send until told to end."""
    parser = argparse.ArgumentParser(prog="fairway-samples", description="Bring sampled requests to the operator.")
    parser.add_argument("--folder", required=True)
    parser.add_argument("--url", required=True, help="below it each file has its name")
    given = parser.parse_args(arguments)
    # Blocked, a signal waits until it is asked for: nothing that is being sent breaks off.
    signal.pthread_sigmask(signal.SIG_BLOCK, _TO_END)
    sending = Sending(given.folder, given.url, fetch.token())
    if sending.run(lambda seconds: signal.sigtimedwait(_TO_END, seconds) is not None):
        return 0
    _say("not all samples could be brought to the operator; what is left goes with the pod")
    return 1


if __name__ == "__main__":
    sys.exit(main())
