"""`python -m fairway.runtime.pod.samples --folder FOLDER --url URL`: upload the requests that a replica samples to the operator.

It runs next to the replica, in the same pod, and ends after it. Each complete file is sent, oldest first, and removed when the
operator has confirmed that it is on its disk. While the operator is not reachable, files wait; the replica removes the oldest
when there are too many. On SIGTERM, which the kubelet sends when the replica has ended, it also sends the complete requests of
the file that the replica was writing. The token is in `FAIRWAY_GIVEN_TOKEN`. Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO, Callable

from fairway.runtime.appended_file import whole_lines
from fairway.runtime.pod import fetch
from fairway.runtime.pod.http_upload import put

EVERY = 1.0
"""Interval in seconds between checks for new files."""
LONGEST = 30.0
"""Maximum seconds between two retries."""
PATIENCE = 20.0
"""Seconds for which sending the remaining files is retried at the end; until then only the pod has them."""
SILENCE = 10.0
"""Seconds without a response after which a connection counts as broken."""
COMPLETE = ".jsonl"
HALF = ".jsonl.part"
MEDIA_TYPE = "application/jsonl"
_BLOCK = 1 << 20
_TO_END = (signal.SIGTERM, signal.SIGINT)


class SampleUploader:
    """Sends the files of a folder."""

    def __init__(self, folder: str, url: str, token: str) -> None:
        self._folder = folder
        self._url = url
        self._token = token
        self._unwanted: set[str] = set()
        """Files that the operator rejected; it would reject them again."""

    def run(self, told: Callable[[float], bool], pause: Callable[[float], None] = time.sleep) -> bool:
        """Send files until `told` returns true, then the remaining ones; return whether all were sent.

        `told` waits for the given seconds and returns whether to end.
        """
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
        """Send the files with these endings, oldest first; return False if one could not be sent but may be later."""
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
            return True  # The replica has deleted it to make room.
        except fetch.RequestRejectedError as error:
            _say(f"the operator rejected {name}: {error}")
            if error.missing:
                return False  # The operator may not have seen this pod yet.
            self._unwanted.add(name)
        except OSError as error:
            _say(f"{name} has not been sent to the operator yet: {error}")
            return False
        return True


def _blocks(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size > 0:
        block = file.read(min(_BLOCK, size))
        if not block:
            raise OSError("the file became shorter while it was sent")
        size -= len(block)
        yield block


def _say(words: str) -> None:
    sys.stderr.write(f"fairway: {words}\n")
    sys.stderr.flush()


def main(arguments: list[str] | None = None) -> int:
    """Send files until a signal arrives."""
    parser = argparse.ArgumentParser(prog="fairway-samples", description="Send sampled requests to the operator.")
    parser.add_argument("--folder", required=True)
    parser.add_argument("--url", required=True, help="base URL; each file is sent to URL/NAME")
    options = parser.parse_args(arguments)
    # While blocked, a signal stays pending until `sigtimedwait`, so no transfer is interrupted.
    signal.pthread_sigmask(signal.SIG_BLOCK, _TO_END)
    sending = SampleUploader(options.folder, options.url, fetch.token())
    if sending.run(lambda seconds: signal.sigtimedwait(_TO_END, seconds) is not None):
        return 0
    _say("not all samples could be sent to the operator; the remaining ones are lost with the pod")
    return 1


if __name__ == "__main__":
    sys.exit(main())
