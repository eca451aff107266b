"""Checks of `fairway doctor` on the record of this home: database, backups, recoveries and unreadable parts."""

from __future__ import annotations

from fairway.cli.diagnosis.finding import OK, PROBLEM, WARNING, DoctorFinding
from fairway.cli.session import say
from fairway.errors import FairwayError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fairway.cli.session import CommandSession

_RECENT = 7 * 86400.0
"""Age in seconds up to which a recovery is shown."""
_OLD_BACKUP = 86400.0


def record(session: CommandSession) -> list[DoctorFinding]:
    """Return findings about the record, from the daemon. Empty if no daemon answers: another check reports that."""
    try:
        condition = session.fetch("/v1/condition")
    except FairwayError:
        return []
    return [
        _database(condition),
        _backups(condition),
        *_recoveries(condition["recoveries"]),
        *_unreadable(condition["unreadable"]),
        *_unknown(condition["unknown"]),
    ]


def set_aside(session: CommandSession, name: str) -> None:
    """Move the folder of an unreadable run into the home's folder `set-aside`; nothing is deleted."""
    moved = session.send("POST", "/v1/condition/set-aside", {"name": name})
    say(f"{name} was moved to {moved['path']}")


def ask(session: CommandSession) -> None:
    """Ask the user what to do with each unreadable folder; an empty line keeps it."""
    for folder in session.fetch("/v1/condition")["unknown"]:
        if folder["running"]:
            continue
        say(f"{folder['path']}: {folder['cause']}.")
        try:
            answer = input("Keep it where it is (k), or move it to set-aside in the home (m)? [k] ")
        except EOFError:
            return
        if answer.strip().lower() in ("m", "move"):
            set_aside(session, folder["name"])


def _database(found: dict[str, Any]) -> DoctorFinding:
    text = f"{found['path']}, {_size(found['size'])}, format {found['format']}"
    if found["fault"]:
        return DoctorFinding(
            "database", WARNING, f"{text}; {found['fault']}", "free space on its disk, or look at it with `dmesg`"
        )
    return DoctorFinding("database", OK, text)


def _backups(found: dict[str, Any]) -> DoctorFinding:
    backups = found["backups"]
    if not backups:
        fix = "the daemon makes one soon after its start and then every hour; if there is still none, see the daemon's log"
        return DoctorFinding("backups", WARNING, "there is no backup yet", fix)
    newest, total = backups[0], sum(backup["size"] for backup in backups)
    text = f"{len(backups)}, {_size(total)}; the newest is {_age(newest['age'])} old, the oldest {_age(backups[-1]['age'])}"
    if newest["age"] > _OLD_BACKUP and found["fault"]:
        return DoctorFinding("backups", PROBLEM, text, found["fault"])
    return DoctorFinding("backups", OK, text)


def _recoveries(recoveries: list[dict[str, Any]]) -> list[DoctorFinding]:
    findings = []
    for recovery in recoveries:
        if recovery["age"] > _RECENT:
            break
        lost = f"; lost: {'; '.join(recovery['lost'])}" if recovery["lost"] else "; nothing was lost"
        text = f"{_age(recovery['age'])} ago: {recovery['message']}{lost}"
        fix = f"when everything is as expected, delete the damaged original: rm {recovery['moved']}" if recovery["moved"] else ""
        findings.append(DoctorFinding("recovery", WARNING, text, fix))
    return findings


def _unreadable(records: list[dict[str, Any]]) -> list[DoctorFinding]:
    findings = []
    for entry in records:
        word = {"service": "service/", "queue": "queue/"}.get(entry["kind"], "")
        name = entry["subject"].rpartition("/")[2].rpartition(":")[2]
        fix = "use the version of fairway that wrote it"
        fix += f", or remove it: fairway delete {word}{name}" if entry["kind"] in ("job", "service", "queue") else ""
        findings.append(
            DoctorFinding("unreadable", PROBLEM, f"the record of {entry['subject']} cannot be read: {entry['cause']}", fix)
        )
    return findings


def _unknown(folders: list[dict[str, Any]]) -> list[DoctorFinding]:
    findings = []
    for folder in folders:
        text = f"{folder['path']} exists, but its run cannot be shown: {folder['cause']}"
        if folder["running"]:
            findings.append(
                DoctorFinding("unknown folder", WARNING, f"{text}; one of its tasks is still running", "wait until it has ended")
            )
        else:
            fix = f"inspect it; to move it out of the way: fairway doctor --set-aside {folder['name']}"
            findings.append(DoctorFinding("unknown folder", WARNING, text, fix))
    return findings


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
