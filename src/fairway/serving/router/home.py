"""The folder of one service's router: its name, what lies in it, and whether anybody keeps it."""

from __future__ import annotations

import fcntl
import os
import secrets
import signal
import sys
from hashlib import blake2b
from pathlib import Path

from fairway.app import crash
from fairway.errors import BugError
from fairway.serving.router.keeper import LOCK
from fairway.serving.router.wire import decode_plan
from fairway.state.route import RoutePlan

ROUTERS = "routers"
"""The folder of the home in which each service's router has one."""
SERVICE = "service"
"""The file that holds the service's name."""
PLAN = "plan.json"
"""The file that holds the plan in force."""
ACCESS = "access"
"""The folder of the access log."""
TOKEN = "outcome-token"
"""The file that holds what reports of outcomes must show."""


def home_of(folder: Path, service: str) -> Path:
    """The folder of a service; names have no dots."""
    return folder / service.replace("/", ".")


def kept_homes(folder: Path) -> dict[str, Path]:
    """The folders that there are, by service."""
    if not folder.exists():
        return {}
    homes = sorted(home for home in folder.iterdir() if (home / SERVICE).exists())
    return {(home / SERVICE).read_text(): home for home in homes}


def short_folder(runtime: Path, home: Path) -> Path:
    """Where its sockets lie: short whatever the home's path is, since Unix sockets allow 107 bytes."""
    return runtime / f"router-{blake2b(os.fsencode(home.absolute()), digest_size=6).hexdigest()}"


def keeper_command(home: Path, sockets: Path, host: str, port: int) -> list[str]:
    """The command that starts a keeper; limits other than usual may follow."""
    return [sys.executable, "-P", "-m", "fairway.serving.router.keeper", str(home), str(sockets), host, str(port)]


def is_kept(home: Path) -> bool:
    """Whether a keeper lives: it holds the lock."""
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
    """Signal who keeps the folder and is known to live: the lock is held."""
    try:
        pid = int((home / LOCK).read_text())
        with crash.reach("router.signal"):
            os.kill(pid, what)
    except (OSError, ValueError):
        # It is just beginning or just ending; who waits for it sees that.
        return


def read_plan(home: Path) -> RoutePlan | None:
    """The plan that was put last; None when there is none that can be read."""
    try:
        return decode_plan((home / PLAN).read_bytes())
    except (OSError, BugError):
        return None


def read_port(home: Path) -> int:
    """The port that the service had last; 0: none yet."""
    try:
        return int((home / "port").read_text())
    except (OSError, ValueError):
        return 0


def outcome_token(home: Path) -> str:
    """What reports of outcomes must show; empty when there is none yet."""
    try:
        return (home / TOKEN).read_text().strip()
    except OSError:
        return ""


def make_outcome_token(home: Path) -> None:
    """Make the token, once, for the owner's eyes only."""
    if outcome_token(home):
        return
    aside = home / f"{TOKEN}.new"
    aside.unlink(missing_ok=True)
    with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(secrets.token_hex(20))
    with crash.reach("router.rename"):
        aside.replace(home / TOKEN)


def write(path: Path, data: bytes) -> None:
    """Replace a file as a whole; only its owner can read it."""
    aside = path.with_name(path.name + ".new")
    aside.unlink(missing_ok=True)
    with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)
    with crash.reach("router.rename"):
        aside.replace(path)
