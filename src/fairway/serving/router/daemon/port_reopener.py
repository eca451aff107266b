"""Reopens the ports of services when the daemon starts, before anything else is imported or read.

The processes that hold a port may have been killed together with the daemon. Requests need the recorded plan and a router, not
the daemon, and starting the daemon takes seconds on a busy machine.
"""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fairway.app.system import crash_point
from fairway.serving.router.keeper import LOG
from fairway.serving.router.router_folder import is_kept, keeper_command, kept_homes, read_plan, read_port, short_folder

log = logging.getLogger("fairway.router")

_PATIENCE = 10.0
"""Timeout for all starts together, in seconds; a keeper gives up sooner."""


def reopen(folder: Path, runtime_folder: Path) -> list[subprocess.Popen[bytes]]:
    """Start a keeper for each service that listened and has none. Return the processes, for `await_starts`.

    The caller holds the home, and the recorded plans are of this boot of the machine. What cannot be started here is left to
    the daemon's first pass, which reports it.
    """
    starts = []
    for service, home in kept_homes(folder).items():
        try:
            started = _start(home, short_folder(runtime_folder, home))
        except OSError as problem:
            log.warning("%s: its port cannot be opened yet: %s", service, problem)
        else:
            starts += [started] if started is not None else []
    return starts


def _start(home: Path, sockets: Path) -> subprocess.Popen[bytes] | None:
    """Start a keeper at the recorded address; return None if a keeper lives, or if the address is not certain."""
    plan, port = read_plan(home), read_port(home)
    if plan is None or not port or plan.port not in (0, port) or not sockets.is_dir() or is_kept(home):
        return None
    with open(home / LOG, "ab") as output, crash_point.reach("router.spawn"):
        return subprocess.Popen(
            keeper_command(home, sockets, plan.host, port), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=output
        )


def await_starts(starts: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait until each keeper holds its port or has given up, so that none is started twice."""
    for start in starts:
        with suppress(subprocess.TimeoutExpired):
            start.wait(_PATIENCE)
