"""What our service accounts requested from the API servers of this session, read from their audit logs when they stop.

Test runs in several processes keep it in the folder that `FAIRWAY_CLUSTER_HEARD` names, where a later run finds it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

SYSTEM = "fairway-system"
_ACCOUNT = f"system:serviceaccount:{SYSTEM}:fairway-"
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": [f"system:serviceaccounts:{SYSTEM}"]}, {"level": "None"}],
}


class Asked(NamedTuple):
    """A permission that one of our processes used."""

    process: str
    group: str
    resource: str
    """Including its subresource: `pods/log`."""
    verb: str


class Heard:
    """The requests that were made, and those of them that were forbidden."""

    def __init__(self) -> None:
        self.allowed: set[Asked] = set()
        self.forbidden: dict[Asked, str] = {}

    def keep(self, folder: Path, files: set[str]) -> None:
        """Save what was requested by the tests of these files, for a later run that checks all of it."""
        folder.mkdir(parents=True, exist_ok=True)
        kept = {"files": sorted(files), "allowed": sorted(self.allowed), "forbidden": sorted(self.forbidden.items())}
        (folder / f"{os.getpid()}.json").write_text(json.dumps(kept))

    def recall(self, folder: Path) -> set[str]:
        """Add everything that was saved; return the test files that it came from."""
        files: set[str] = set()
        for path in folder.glob("*.json"):
            kept = json.loads(path.read_text())
            files.update(kept["files"])
            self.allowed.update(Asked(*one) for one in kept["allowed"])
            self.forbidden.update({Asked(*one): uri for one, uri in kept["forbidden"]})
        return files

    def add(self, folder: Path) -> None:
        """Add everything that the audit log of a control plane holds so far."""
        for event in _events(folder):
            asked = _asked(event)
            if asked is None:
                continue
            marks = event.get("annotations", {})
            if marks.get("authorization.k8s.io/decision") == "forbid":
                self.forbidden[asked] = event.get("requestURI", "")
            else:
                self.allowed.add(asked)


WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


def writes_of(folder: Path, process: str) -> set[tuple[str, str]]:
    """Return the writes of a process that the API server of this folder has logged, as (verb, resource)."""
    heard = Heard()
    heard.add(folder)
    asked = [one for one in (*heard.allowed, *heard.forbidden) if one.process == process]
    return {(one.verb, one.resource) for one in asked if one.verb in WRITES}


HEARD = Heard()
"""The requests to all control planes of this session."""


def shared() -> Path | None:
    """Return the folder that keeps requests beyond the session; None when it is not set."""
    named = os.environ.get("FAIRWAY_CLUSTER_HEARD")
    return Path(named) if named else None


def flags(folder: Path) -> list[str | Path]:
    """Return the flags with which an API server logs the requests of our accounts."""
    policy = folder / "audit-policy.json"
    policy.write_text(json.dumps(_POLICY))
    return ["--audit-policy-file", policy, "--audit-log-path", _log(folder)]


def _log(folder: Path) -> Path:
    return folder / "audit.log"


def _events(folder: Path) -> Iterator[dict[str, Any]]:
    path = _log(folder)
    if not path.exists():
        return
    with path.open() as lines:
        for line in lines:
            try:
                yield json.loads(line)
            except ValueError:
                continue  # The last line of a server that was killed.


def _asked(event: dict[str, Any]) -> Asked | None:
    user, what = event["user"]["username"], event.get("objectRef")
    if not user.startswith(_ACCOUNT) or not what or "resource" not in what:
        return None
    resource = what["resource"] + (f"/{what['subresource']}" if what.get("subresource") else "")
    return Asked(user.removeprefix(_ACCOUNT), what.get("apiGroup", ""), resource, event["verb"])
