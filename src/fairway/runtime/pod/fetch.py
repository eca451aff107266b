"""`python -m fairway.runtime.pod.fetch --url URL --into FOLDER`: fetch a folder from the operator into a pod.

The token is in `FAIRWAY_GIVEN_TOKEN`, or in the file given by `--token-file`. The folder gets all of the content or none, and its
digest is the one that the operator, or `--digest`, gives. Restarts of the operator, broken connections and damaged content are
retried for a few minutes. Standard library only, Python 3.9 and newer.
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

from fairway.runtime.pod import archive, operator_tls

TOKEN = "FAIRWAY_GIVEN_TOKEN"
DIGEST_HEADER = "X-Fairway-Digest"
"""Response header with the digest of the manifest of the content."""
PATIENCE = 300.0
"""Seconds for which a fetch is retried."""
SILENCE = 60.0
"""Seconds without data after which a connection counts as broken."""
NOT_THERE = 3
"""Exit code if the operator does not have the content."""


Result = TypeVar("Result")


class RequestRejectedError(Exception):
    """Raised when the operator rejects a request, so that a retry would not help."""

    def __init__(self, words: str, missing: bool) -> None:
        super().__init__(words)
        self.missing = missing


def fetch(
    url: str, token: str, into: str, digest: str = "", patience: float = PATIENCE, pause: Callable[[float], None] = time.sleep
) -> int:
    """Fetch the content completely; return the number of entries. Raises `RequestRejectedError`, or `OSError`."""
    return patiently(lambda: _fetch_once(url, token, into, digest), url, patience, pause)


def patiently(attempt: Callable[[], Result], url: str, patience: float, pause: Callable[[float], None] = time.sleep) -> Result:
    """Return the result of the attempt, which is retried while the network or the operator fails."""
    end, wait = time.monotonic() + patience, 0.2
    while True:
        try:
            return attempt()
        except (OSError, http.client.HTTPException, archive.BadArchiveError) as error:
            if time.monotonic() + wait > end:
                message = f"{url} could not be fetched within {patience:.0f} s: {type(error).__name__}: {error}"
                raise OSError(message) from error
            sys.stderr.write(f"fairway: {url}: {type(error).__name__}: {error}; trying again\n")
        pause(wait)
        wait = min(10.0, wait * 2)


def _fetch_once(url: str, token: str, into: str, digest: str) -> int:
    os.makedirs(into, exist_ok=True)
    temporary = os.path.join(into, ".fetch-" + secrets.token_hex(6))
    os.mkdir(temporary)
    try:
        with opened(url, token) as answer:
            expected_digest = digest or answer.headers.get(DIGEST_HEADER, "")
            entries = archive.unpack(answer, temporary)
        actual_digest = archive.digest_of(entries)
        if actual_digest != expected_digest:
            raise archive.BadArchiveError(
                f"its digest is {actual_digest[:12]}, but the expected digest is {expected_digest[:12] or 'missing'}"
            )
        for name in os.listdir(temporary):
            _move(os.path.join(temporary, name), os.path.join(into, name))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return len(entries)


def _move(source: str, target: str) -> None:
    """Move a file or folder, and replace what an earlier start of the same step left at the target."""
    if os.path.isdir(target) and not os.path.islink(target):
        shutil.rmtree(target)
    elif os.path.lexists(target):
        os.unlink(target)
    os.rename(source, target)


def opened(url: str, token: str) -> http.client.HTTPResponse:
    """Return the response to a request. Raises `RequestRejectedError` if a retry would not help, else `OSError`."""
    request = urllib.request.Request(url, headers={"Authorization": "Bearer " + token})
    try:
        return operator_tls.urlopen(request, SILENCE)
    except urllib.error.HTTPError as error:
        detail = error.read(2000).decode(errors="replace").strip()
        raise refused(error.code, detail or str(error.reason), url) from error


def refused(code: int, words: str, what: str) -> Exception:
    """Return the exception for an error response: `RequestRejectedError` if a retry would not help, else `OSError`."""
    if 400 <= code < 500 and code not in (408, 429):
        return RequestRejectedError(f"{what}: {words}", missing=code == 404)
    return OSError(f"HTTP {code}: {words}")


def main(arguments: list[str] | None = None) -> int:
    """Fetch the folder and print the result."""
    parser = argparse.ArgumentParser(prog="fairway-fetch", description="Fetch a folder from the operator into a pod.")
    parser.add_argument("--url", required=True)
    parser.add_argument("--into", required=True)
    parser.add_argument("--digest", default="")
    parser.add_argument("--token-file", default="")
    options = parser.parse_args(arguments)
    try:
        count = fetch(options.url, token(options.token_file), options.into, options.digest)
    except RequestRejectedError as error:
        sys.stderr.write(f"{error}\n")
        return NOT_THERE if error.missing else 1
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"fairway: {count} files from {options.url}\n")
    return 0


def token(path: str = "") -> str:
    """Return the token, from a file or from the environment."""
    if not path:
        return os.environ.get(TOKEN, "")
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


if __name__ == "__main__":
    sys.exit(main())
