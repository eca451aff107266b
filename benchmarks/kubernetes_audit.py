"""The API server's audit log, as benchmarks read it: the writes, their users, and their times by the server's own clock."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from cluster.installed import SYSTEM

KUBE = "system:kube-scheduler"
OURS = f"system:serviceaccount:{SYSTEM}:fairway-scheduler"
OPERATOR = f"system:serviceaccount:{SYSTEM}:fairway-operator"
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "verbs": ["create"], "resources": [{"group": "", "resources": ["pods", "pods/binding"]}]},
        {"level": "Metadata", "verbs": ["create", "update", "patch", "delete"], "users": [OURS, OPERATOR, KUBE]},
        {"level": "Metadata", "verbs": ["create"], "resources": [{"group": "fairway.dev", "resources": ["trainingjobs"]}]},
        {"level": "None"},
    ],
}


@dataclass(frozen=True, slots=True)
class Written:
    """One write, as logged by the API server."""

    user: str
    verb: str
    what: str
    name: str
    asked: float
    done: float


class Audit:
    """The API server's audit log, read as it grows."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "audit.log"
        policy = folder / "audit.json"
        policy.write_text(json.dumps(_POLICY))
        self.flags = ["--audit-log-path", str(self._path), "--audit-policy-file", str(policy), "--delete-collection-workers=16"]
        self._read, self._rest = 0, b""

    def news(self) -> list[Written]:
        """Return the writes since the last successful call."""
        with self._path.open("rb") as log:
            log.seek(self._read)
            fresh = log.read()
        self._read += len(fresh)
        *lines, self._rest = (self._rest + fresh).split(b"\n")
        return [found for line in lines if (found := _written(json.loads(line))) is not None]


def _written(plain: dict[str, Any]) -> Written | None:
    if plain["responseStatus"]["code"] >= 300:
        return None
    it = plain["objectRef"]
    what = it["resource"] + (f"/{it['subresource']}" if "subresource" in it else "")
    asked, done = (datetime.fromisoformat(plain[name]).timestamp() for name in ("requestReceivedTimestamp", "stageTimestamp"))
    return Written(plain["user"]["username"], plain["verb"], what, it.get("name", ""), asked, done)
