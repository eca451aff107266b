"""What `fairway doctor` says of the record of this home: database, backups, recoveries, and what cannot be read."""

from __future__ import annotations

from fairway.cli.finding import OK, PROBLEM, WARNING, Finding
from fairway.cli.session import say
from fairway.errors import FairwayError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fairway.cli.session import Session

_RECENT = 7 * 86400.0
"""Seconds for which a recovery is shown as something to look at."""
_OLD_BACKUP = 86400.0


def record(session: Session) -> list[Finding]:
    """How the record is, from the daemon. Empty when no daemon answers: another section reports that."""
    try:
        found = session.fetch("/v1/condition")
    except FairwayError:
        return []
    return [
        _database(found),
        _backups(found),
        *_recoveries(found["recoveries"]),
        *_unreadable(found["unreadable"]),
        *_unknown(found["unknown"]),
    ]


def set_aside(session: Session, name: str) -> None:
    """Move the folder of a run that cannot be read out of the way; nothing of it is deleted."""
    moved = session.send("POST", "/v1/condition/set-aside", {"name": name})
    say(f"{name} was moved to {moved['path']}")


def ask(session: Session) -> None:
    """Ask a person what to do with folders that cannot be read: keeping them is the answer of an empty line."""
    for one in session.fetch("/v1/condition")["unknown"]:
        if one["running"]:
            continue
        say(f"{one['path']}: {one['cause']}.")
        try:
            answer = input("Keep it where it is (k), or move it to the home's folder set-aside (m)? [k] ")
        except EOFError:
            return
        if answer.strip().lower() in ("m", "move"):
            set_aside(session, one["name"])


def _database(found: dict[str, Any]) -> Finding:
    text = f"{found['path']}, {_size(found['size'])}, format {found['format']}"
    if found["fault"]:
        return Finding("database", WARNING, f"{text}; {found['fault']}", "free space on its disk, or look at it with `dmesg`")
    return Finding("database", OK, text)


def _backups(found: dict[str, Any]) -> Finding:
    backups = found["backups"]
    if not backups:
        fix = "one is made a moment after the daemon starts, and every hour; see the daemon's log if it stays so"
        return Finding("backups", WARNING, "there is none yet", fix)
    newest, total = backups[0], sum(one["size"] for one in backups)
    text = f"{len(backups)}, {_size(total)}; the newest is {_age(newest['age'])} old, the oldest {_age(backups[-1]['age'])}"
    if newest["age"] > _OLD_BACKUP and found["fault"]:
        return Finding("backups", PROBLEM, text, found["fault"])
    return Finding("backups", OK, text)


def _recoveries(recoveries: list[dict[str, Any]]) -> list[Finding]:
    found = []
    for one in recoveries:
        if one["age"] > _RECENT:
            break
        lost = f"; lost: {'; '.join(one['lost'])}" if one["lost"] else "; nothing was lost"
        text = f"{_age(one['age'])} ago: {one['message']}{lost}"
        kept = f"when all is as you want it, the file that was found may go: rm {one['moved']}" if one["moved"] else ""
        found.append(Finding("recovery", WARNING, text, kept))
    return found


def _unreadable(records: list[dict[str, Any]]) -> list[Finding]:
    found = []
    for one in records:
        word = {"service": "service/", "queue": "queue/"}.get(one["kind"], "")
        name = one["subject"].rpartition("/")[2].rpartition(":")[2]
        fix = "use the version of fairway that wrote it"
        fix += f", or remove it: fairway delete {word}{name}" if one["kind"] in ("job", "service", "queue") else ""
        found.append(Finding("unreadable", PROBLEM, f"the record of {one['subject']} cannot be read: {one['cause']}", fix))
    return found


def _unknown(folders: list[dict[str, Any]]) -> list[Finding]:
    found = []
    for one in folders:
        text = f"{one['path']} is kept, but its run cannot be shown: {one['cause']}"
        if one["running"]:
            found.append(Finding("unknown folder", WARNING, f"{text}; a task of it still runs", "wait for its end"))
        else:
            fix = f"look into it; to move it out of the way: fairway doctor --set-aside {one['name']}"
            found.append(Finding("unknown folder", WARNING, text, fix))
    return found


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def _age(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
