"""`python -m fairway.runtime.pod.fetch --url URL --into FOLDER`: bring a folder from the operator into a pod.

Standard library only, Python 3.9 and newer. The token is in `FAIRWAY_GIVEN_TOKEN`, or in the file that `--token-file` names.
The folder holds all of it or nothing, and what it holds has the digest that the operator, or `--digest`, says. An operator
that restarts, a connection that breaks off and content that arrives damaged are tried again for a few minutes.
"""

from __future__ import annotations

import argparse
import http.client
import os
import secrets
import shutil
import sys
import time
import urllib.error
import urllib.request
from typing import Callable, TypeVar

from fairway.runtime.pod import archive, trust

TOKEN = "FAIRWAY_GIVEN_TOKEN"
DIGEST_HEADER = "X-Fairway-Digest"
"""In an answer: the digest of the manifest of what it holds."""
PATIENCE = 300.0
"""Seconds for which it is tried again."""
SILENCE = 60.0
"""Seconds without a byte after which a connection counts as broken."""
NOT_THERE = 3
"""Exit code: the operator has no such thing."""


Result = TypeVar("Result")


class RefusedError(Exception):
    """The operator says no: asking again would change nothing."""

    def __init__(self, words: str, missing: bool) -> None:
        super().__init__(words)
        self.missing = missing


def fetch(
    url: str, token: str, into: str, digest: str = "", patience: float = PATIENCE, pause: Callable[[float], None] = time.sleep
) -> int:
    """Bring it, whole; how many entries there were. Raises `RefusedError`, or `OSError` when patience is over."""
    return patiently(lambda: _fetch_once(url, token, into, digest), url, patience, pause)


def patiently(attempt: Callable[[], Result], url: str, patience: float, pause: Callable[[float], None] = time.sleep) -> Result:
    """What the attempt gives, tried again while networks and operators fail."""
    end, wait = time.monotonic() + patience, 0.2
    while True:
        try:
            return attempt()
        except (OSError, http.client.HTTPException, archive.BadArchiveError) as error:
            if time.monotonic() + wait > end:
                words = f"{url} could not be brought here in {patience:.0f} s: {type(error).__name__}: {error}"
                raise OSError(words) from error
            sys.stderr.write(f"fairway: {url}: {type(error).__name__}: {error}; trying again\n")
        pause(wait)
        wait = min(10.0, wait * 2)


def _fetch_once(url: str, token: str, into: str, digest: str) -> int:
    os.makedirs(into, exist_ok=True)
    aside = os.path.join(into, ".fetch-" + secrets.token_hex(6))
    os.mkdir(aside)
    try:
        with opened(url, token) as answer:
            wanted = digest or answer.headers.get(DIGEST_HEADER, "")
            entries = archive.unpack(answer, aside)
        found = archive.digest_of(entries)
        if found != wanted:
            raise archive.BadArchiveError(f"it came as {found[:12]}, and {wanted[:12] or 'nobody said what'} was meant")
        for name in os.listdir(aside):
            _move(os.path.join(aside, name), os.path.join(into, name))
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return len(entries)


def _move(source: str, target: str) -> None:
    """What an earlier start of the same step left there gives way."""
    if os.path.isdir(target) and not os.path.islink(target):
        shutil.rmtree(target)
    elif os.path.lexists(target):
        os.unlink(target)
    os.rename(source, target)


def opened(url: str, token: str) -> http.client.HTTPResponse:
    """The answer to a question. Raises `RefusedError` where asking again would change nothing, else `OSError`."""
    request = urllib.request.Request(url, headers={"Authorization": "Bearer " + token})
    try:
        return trust.urlopen(request, SILENCE)
    except urllib.error.HTTPError as error:
        words = error.read(2000).decode(errors="replace").strip()
        raise refused(error.code, words or str(error.reason), url) from error


def refused(code: int, words: str, what: str) -> Exception:
    """What an answer means: `RefusedError` where asking again would change nothing, else `OSError`."""
    if 400 <= code < 500 and code not in (408, 429):
        return RefusedError(f"{what}: {words}", missing=code == 404)
    return OSError(f"HTTP {code}: {words}")


def main(arguments: list[str] | None = None) -> int:
    """Do it, and say what was done."""
    parser = argparse.ArgumentParser(prog="fairway-fetch", description="Bring a folder from the operator into a pod.")
    parser.add_argument("--url", required=True)
    parser.add_argument("--into", required=True)
    parser.add_argument("--digest", default="")
    parser.add_argument("--token-file", default="")
    given = parser.parse_args(arguments)
    try:
        count = fetch(given.url, token(given.token_file), given.into, given.digest)
    except RefusedError as error:
        sys.stderr.write(f"{error}\n")
        return NOT_THERE if error.missing else 1
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"fairway: {count} files from {given.url}\n")
    return 0


def token(path: str = "") -> str:
    """The token, from a file or from the environment."""
    if not path:
        return os.environ.get(TOKEN, "")
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


if __name__ == "__main__":
    sys.exit(main())
