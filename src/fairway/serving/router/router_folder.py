"""The folder of one service's router: its name, its files, and whether a keeper holds its lock."""

from __future__ import annotations

import fcntl
import os
import secrets
import signal
import sys
from hashlib import blake2b
from pathlib import Path

from fairway.app.system import crash_point
from fairway.errors import BugError
from fairway.serving.router.keeper import LOCK
from fairway.serving.router.wire_format import decode_plan
from fairway.state.serving.route import RoutePlan

ROUTERS = "routers"
"""The folder in the home that holds one folder per service's router."""
SERVICE = "service"
"""The file with the service's name."""
PLAN = "plan.json"
"""The file with the plan in force."""
ACCESS = "access"
"""The folder of the access log."""
TOKEN = "outcome-token"
"""The file with the token that reports of outcomes must carry."""


def home_of(folder: Path, service: str) -> Path:
    """Return the folder of a service's router. Names contain no dots, so a dot can replace the slash."""
    return folder / service.replace("/", ".")


def kept_homes(folder: Path) -> dict[str, Path]:
    """Return the existing folders, by service."""
    if not folder.exists():
        return {}
    homes = sorted(home for home in folder.iterdir() if (home / SERVICE).exists())
    return {(home / SERVICE).read_text(): home for home in homes}


def short_folder(runtime: Path, home: Path) -> Path:
    """Return the folder of the router's sockets, short however long the home's path is: Unix sockets allow 107 bytes."""
    return runtime / f"router-{blake2b(os.fsencode(home.absolute()), digest_size=6).hexdigest()}"


def keeper_command(home: Path, sockets: Path, host: str, port: int) -> list[str]:
    """Return the command that starts a keeper; limits other than the defaults may be appended."""
    return [sys.executable, "-P", "-m", "fairway.serving.router.keeper", str(home), str(sockets), host, str(port)]


def is_kept(home: Path) -> bool:
    """Return whether a keeper is alive, that is, holds the lock."""
    try:
        lock = os.open(home / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def send(home: Path, what: signal.Signals) -> None:
    """Send a signal to the keeper of the folder, which must be known to be alive (the lock is held)."""
    try:
        pid = int((home / LOCK).read_text())
        with crash_point.reach("router.signal"):
            os.kill(pid, what)
    except (OSError, ValueError):
        # The keeper is just starting or just ending; a caller that waits for it notices.
        return


def read_plan(home: Path) -> RoutePlan | None:
    """Return the plan that was put last; None if there is none or it cannot be read."""
    try:
        return decode_plan((home / PLAN).read_bytes())
    except (OSError, BugError):
        return None


def read_port(home: Path) -> int:
    """Return the service's last port; 0 if it has none yet."""
    try:
        return int((home / "port").read_text())
    except (OSError, ValueError):
        return 0


def outcome_token(home: Path) -> str:
    """Return the token that reports of outcomes must carry; empty if there is none yet."""
    try:
        return (home / TOKEN).read_text().strip()
    except OSError:
        return ""


def make_outcome_token(home: Path) -> None:
    """Create the token, once, readable by the owner only."""
    if outcome_token(home):
        return
    temporary = home / f"{TOKEN}.new"
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(secrets.token_hex(20))
    with crash_point.reach("router.rename"):
        temporary.replace(home / TOKEN)


def write(path: Path, data: bytes) -> None:
    """Replace a file atomically; only its owner can read it."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)
    with crash_point.reach("router.rename"):
        temporary.replace(path)
