"""`--watch`: show a view again whenever it changes, until Ctrl-C."""

from __future__ import annotations

import time

from fairway.cli.argument_parser import CommandFlag
from fairway.cli.session import is_terminal, terminal_height, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from fairway.cli.session import CommandSession

WATCH = CommandFlag(
    "--watch",
    "update the display on every change, until Ctrl-C (exit code 0); without a terminal, print it again on every change",
)
EVERY = 1.0
"""Poll interval in seconds."""
_PASSING = frozenset({"duration", "remaining", "age", "time"})
"""Fields that change merely with time."""


def show(session: CommandSession, paths: list[str], query: dict[str, Any] | None = None, *, merged: bool = False) -> int:
    """Print views one below the other; with `--watch`, until Ctrl-C. If `merged`, JSON output is a single value."""
    full_query = query or {}

    def drawn() -> bytes:
        if session.output == "json" and merged:
            import json

            merged_views = {name: value for path in paths for name, value in session.fetch(path, full_query).items()}
            return (json.dumps(merged_views, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "surrogateescape")
        return b"".join(session.call("GET", path, {**full_query, **session.look()}).read() for path in paths)

    if not session.options.on("watch"):
        write(drawn())
        return 0
    try:
        if is_terminal(1):
            _redraw(drawn)
        else:
            _print_changes(drawn, lambda: [_lasting(session.fetch(path, full_query)) for path in paths])
    except KeyboardInterrupt:
        return 0
    return 0


def _redraw(drawn: Callable[[], bytes]) -> None:
    """Redraw on the terminal from the upper left corner, so that nothing flickers. Lines that do not fit are left out."""
    write(b"\x1b[2J")
    while True:
        lines = drawn().splitlines()
        height = terminal_height()
        if height and len(lines) >= height:
            lines = [*lines[: height - 2], f"... {len(lines) - height + 2} more lines".encode()]
        write(b"\x1b[H" + b"".join(line + b"\x1b[K\n" for line in lines) + b"\x1b[J")
        time.sleep(EVERY)


def _print_changes(drawn: Callable[[], bytes], state: Callable[[], object]) -> None:
    """Print a block for each change, ignoring fields that change merely with time."""
    import json

    printed = ""
    while True:
        current = json.dumps(state(), sort_keys=True)
        if current != printed:
            write((b"\n" if printed else b"") + drawn())
            printed = current
        time.sleep(EVERY)


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lasting(item) for name, item in value.items() if name not in _PASSING}
    return [_lasting(item) for item in value] if isinstance(value, list) else value
