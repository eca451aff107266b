"""Entry point of the daemon: locks the home and opens the ports of services, and only then imports the rest."""

from __future__ import annotations

import fcntl
import logging
import os
import subprocess
import sys
from pathlib import Path

from fairway.app.system import crash_point, disk_error
from fairway.app.system.clock import CLOCK, is_of_this_boot
from fairway.bootstrap import inherited
from fairway.errors import FairwayError, UnavailableError
from fairway.sdk.transport import local_path
from fairway.serving.router.daemon.port_reopener import await_starts, reopen
from fairway.serving.router.router_folder import ROUTERS
from fairway.settings import Settings, environment


def main() -> int:
    """Run the daemon of the configured home; return the exit code."""
    try:
        settings = Settings.from_environment(environment())
    except FairwayError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    logging.basicConfig(level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    os.umask(0o077)
    inherited.shed()
    try:
        crash_point.arm(settings.crash_at)
        hold_home(settings.home)
        return _run(settings)
    except FairwayError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except OSError as error:
        if disk_error.explain(error, str(settings.home)) is None:
            raise
        sys.stderr.write(f"{_unwritable(error, settings.home)}\n")
        return UnavailableError.exit_code


def _run(settings: Settings) -> int:
    starts = _reopen_ports(settings)
    # The import takes longer than the start of a keeper and a router.
    from fairway.bootstrap import daemon  # noqa: PLC0415

    await_starts(starts)
    return daemon.run(settings)


def _reopen_ports(settings: Settings) -> list[subprocess.Popen[bytes]]:
    """Open the ports that were open when the daemon ended.

    Not after a reboot: then the recorded addresses of replicas are invalid.
    """
    if not is_of_this_boot(settings.home / CLOCK):
        return []
    local_path.make_runtime_folder(str(settings.socket.parent))
    return reopen(settings.home / ROUTERS, settings.socket.parent)


def hold_home(home: Path) -> int:
    """Lock the home for the lifetime of this process, or raise an error that another daemon holds it."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        home.chmod(0o700)
        lock = os.open(home / local_path.LOCK_NAME, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unwritable(error, home) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        message = f"another daemon runs for {home}"
        raise UnavailableError(message, fix="`fairway daemon status` shows it") from error
    try:
        os.ftruncate(lock, 0)
        os.write(lock, f"{os.getpid()}\n".encode())
    except OSError as error:
        raise _unwritable(error, home) from error
    return lock


def _unwritable(error: OSError, home: Path) -> UnavailableError:
    why, fix = disk_error.explain(error, str(home)) or (
        str(error),
        "set FAIRWAY_HOME to a folder on a local disk that you may write",
    )
    return UnavailableError(f"the home {home} cannot be written: {why}", fix=fix)
