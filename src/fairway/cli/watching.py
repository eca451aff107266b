"""`--watch`: a view, drawn again when it changes, until Ctrl-C."""

from __future__ import annotations

import time

from fairway.cli.grammar import Flag
from fairway.cli.session import is_terminal, terminal_height, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from fairway.cli.session import Session

WATCH = Flag("--watch", "draw it again when it changes, until Ctrl-C (exit code 0); without a terminal, print it when it changes")
EVERY = 1.0
"""Seconds between two looks."""
_PASSING = frozenset({"duration", "remaining", "age", "time"})
"""What changes with time alone."""


def show(session: Session, paths: list[str], query: dict[str, Any] | None = None, *, merged: bool = False) -> int:
    """Print views one below the other; with `--watch`, until Ctrl-C. `merged`: as JSON they are one value."""
    asked = query or {}

    def drawn() -> bytes:
        if session.output == "json" and merged:
            import json

            found = {name: value for path in paths for name, value in session.fetch(path, asked).items()}
            return (json.dumps(found, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "surrogateescape")
        return b"".join(session.call("GET", path, {**asked, **session.look()}).read() for path in paths)

    if not session.options.on("watch"):
        write(drawn())
        return 0
    try:
        if is_terminal(1):
            _redraw(drawn)
        else:
            _print_changes(drawn, lambda: [_lasting(session.fetch(path, asked)) for path in paths])
    except KeyboardInterrupt:
        return 0
    return 0


def _redraw(drawn: Callable[[], bytes]) -> None:
    """On a terminal: from the upper left corner, so that nothing flickers. What does not fit is left out."""
    write(b"\x1b[2J")
    while True:
        lines = drawn().splitlines()
        most = terminal_height()
        if most and len(lines) >= most:
            lines = [*lines[: most - 2], f"... {len(lines) - most + 2} more lines".encode()]
        write(b"\x1b[H" + b"".join(line + b"\x1b[K\n" for line in lines) + b"\x1b[J")
        time.sleep(EVERY)


def _print_changes(drawn: Callable[[], bytes], state: Callable[[], object]) -> None:
    """Elsewhere: one block a change. What changes with time alone is no change."""
    import json

    known = ""
    while True:
        current = json.dumps(state(), sort_keys=True)
        if current != known:
            write((b"\n" if known else b"") + drawn())
            known = current
        time.sleep(EVERY)


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lasting(one) for name, one in value.items() if name not in _PASSING}
    return [_lasting(one) for one in value] if isinstance(value, list) else value
