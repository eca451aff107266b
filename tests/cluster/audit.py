"""What our accounts asked of the API servers of this session: each writes it down, and it is added up when it stops."""

from __future__ import annotations

import json
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
    """A permission that one of our processes made use of."""

    process: str
    group: str
    resource: str
    """With its subresource: `pods/log`."""
    verb: str


class Heard:
    """What was asked, and what of it was forbidden."""

    def __init__(self) -> None:
        self.allowed: set[Asked] = set()
        self.forbidden: dict[Asked, str] = {}

    def add(self, folder: Path) -> None:
        """Everything that a control plane wrote down so far."""
        for event in _events(folder):
            asked = _asked(event)
            if asked is None:
                continue
            marks = event.get("annotations", {})
            if marks.get("authorization.k8s.io/decision") == "forbid":
                self.forbidden[asked] = event.get("requestURI", "")
            else:
                self.allowed.add(asked)


HEARD = Heard()
"""Of all control planes of this session."""


def flags(folder: Path) -> list[str | Path]:
    """With these an API server writes down what our accounts ask."""
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
                continue  # The last one, of a server that was killed.


def _asked(event: dict[str, Any]) -> Asked | None:
    user, what = event["user"]["username"], event.get("objectRef")
    if not user.startswith(_ACCOUNT) or not what or "resource" not in what:
        return None
    resource = what["resource"] + (f"/{what['subresource']}" if what.get("subresource") else "")
    return Asked(user.removeprefix(_ACCOUNT), what.get("apiGroup", ""), resource, event["verb"])
