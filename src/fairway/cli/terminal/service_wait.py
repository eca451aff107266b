"""Waiting until a service answers, with progress messages, and the reason if the wait is given up."""

from __future__ import annotations

import re
import sys
import time

from fairway.cli.address import service_path
from fairway.cli.session import is_terminal, say, terminal_width

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fairway.cli.session import CommandSession

LOOK_EVERY = 0.25
"""Poll interval in seconds."""
QUIET = 2.0
"""Seconds before the first progress message if there is no terminal."""
MOST_STARTS = 3
"""Number of failed starts of the server after which the wait is given up."""
LAST_LINES = 20
WIDTH = 500
"""Maximum length of a message that is shown."""
LOG_WIDTH = 2000
"""Maximum length of a shown line of a server's output."""


class ServiceWait:
    """Waits for one service. `deadline` is a time of `time.monotonic`, or None."""

    def __init__(self, session: CommandSession, name: str, deadline: float | None) -> None:
        self._session = session
        self._name = name
        self._deadline = deadline
        self._begun = time.monotonic()
        self._terminal = is_terminal(2)
        self._told = ""

    def settle(self) -> tuple[dict[str, Any], str]:
        """Wait until the service answers or needs no replica; return it and an empty text, or the reason for giving up."""
        while True:
            service: dict[str, Any] = self._session.fetch(service_path(self._name))
            verdict = _verdict(service)
            if verdict is None and self._deadline is not None and time.monotonic() >= self._deadline:
                waited = time.monotonic() - self._begun
                verdict = f"after {waited:.0f} s {_state(service)}{_detail(service)}"
            if verdict is not None:
                self._clear()
                return service, verdict
            self._say(service)
            time.sleep(LOOK_EVERY)

    def explain(self, found: dict[str, Any], reason: str) -> None:
        """Print why the service does not answer, the last lines of its server if that keeps ending, and what to do."""
        name = found["name"]
        lines = self._last_lines(name) if _keeps_ending(found) else []
        for line in lines:
            say(line)
        fixes = [line.partition("fix:")[2].strip() for line in lines if "  fix: " in line]
        say(f"{name} does not answer: {reason}")
        for fix in fixes[-1:]:
            say(f"  fix: {fix}")
        say(
            f"the service stays, and Fairway keeps trying: fairway why service/{name}; "
            f"to delete it: fairway delete service/{name}"
        )

    def _last_lines(self, name: str) -> list[str]:
        """Return the last output of the newest replica; that of earlier ones is the same."""
        raw = self._session.call("GET", service_path(name, "/logs"), {"tail": LAST_LINES}).read()
        lines: list[str] = raw.decode("utf-8", "replace").splitlines()
        newest = next((match[0] for line in reversed(lines) if (match := re.match(r"\S+ \| ", line))), "")
        return [line[:LOG_WIDTH] for line in lines if line.startswith(newest) and line[len(newest) :].strip()]

    def _say(self, found: dict[str, Any]) -> None:
        line = f"{_state(found)}{_detail(found)}"
        waited = time.monotonic() - self._begun
        if self._terminal:
            text = f"{self._name}: {line} ({waited:.0f} s)"
            sys.stderr.write(f"\r\x1b[K{text[: (terminal_width() or 200) - 1]}")
            sys.stderr.flush()
            return
        # Durations and counts of attempts change all the time; they do not make a new state.
        state = re.sub(r"[0-9]+(\.[0-9]+)?m?s\b|tried [0-9]+ times?", "#", line)
        if state != self._told and waited > QUIET:
            self._told = state
            say(f"{self._name}: {line}")

    def _clear(self) -> None:
        if self._terminal:
            sys.stderr.write("\r\x1b[K")


def _verdict(found: dict[str, Any]) -> str | None:
    """Return an empty text if the service answers, the reason if it will not, and None if that is undecided."""
    if _keeps_ending(found):
        return f"its server was started {MOST_STARTS} times and ended each time ({_first_line(found['message'])})"
    if found["faults"] and not found["url"]:
        return _first_line(found["message"])
    moving = found.get("moving", False)
    if moving and (refused := [fault["cause"] for fault in found["faults"] if fault["work"] == "route"]):
        return _first_line(f"it keeps its previous endpoint: {refused[0]}")
    if not found["url"] or found["release"] or moving:
        return None
    if found["ready_replicas"] or not found["wanted_replicas"]:
        return ""
    # No release is in progress: the last one was rolled back, or the serving replicas are gone.
    return _first_line(found["message"]) if found["message"] else None


def _keeps_ending(found: dict[str, Any]) -> bool:
    """Whether the newest server of the service keeps ending before it answers."""
    newest = max(found["revisions"], key=lambda revision: revision["number"], default=None)
    return newest is not None and newest["failures"] >= MOST_STARTS and newest["phase"] == "New"


def _state(found: dict[str, Any]) -> str:
    release = found["release"]
    part = f", {release['part']:.0%} of the traffic" if release and release["source"] else ""
    return f"{found['phase']}, {found['ready_replicas']} of {found['wanted_replicas']} replicas ready{part}"


def _detail(found: dict[str, Any]) -> str:
    """Return the message of the service, or else of its first replica that is not ready."""
    messages = (
        f"{replica['name']}: {replica['message']}"
        for replica in found["replicas"]
        if replica["phase"] != "Ready" and replica["message"]
    )
    detail = _first_line(found["message"]) or next(messages, "")
    return f"; waits: {detail}" if detail else ""


def _first_line(text: str) -> str:
    return " ".join(text.split())[:WIDTH]
