"""What commands upload to a cluster."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from fairway.cli.cluster import upload
from fairway.errors import DeniedError, UnavailableError

CONTENT = b"1,2\n"


class Reply:
    def __init__(self, body: object) -> None:
        self._body = json.dumps(body).encode()

    def read(self) -> bytes:
        return self._body


class Moody:
    """A cluster that is unreachable for the first `away` requests, and has no content."""

    def __init__(self, away: int = 0) -> None:
        self.away = away
        self.waited = 0
        self.got: dict[str, bytes] = {}

    def start(self) -> None:
        self.waited += 1

    def request(self, method: str, path: str, query: Any, body: bytes = b"", *, kind: str) -> Reply:
        if self.away:
            self.away -= 1
            raise UnavailableError("away")
        if path == "/v1/health":
            return Reply({})
        head, _, rest = body.partition(b"\n")
        standing = []
        for part in json.loads(head)["parts"]:
            data, rest = rest[: part["length"]], rest[part["length"] :]
            self.got[part["digest"]] = self.got.get(part["digest"], b"") + data
            have = len(self.got[part["digest"]])
            standing.append({"have": have, "checked": have, "whole": have == part["size"]})
        return Reply({"standing": standing})


class Session:
    namespace = "team"

    def __init__(self, daemon: Any) -> None:
        self.daemon = daemon


@pytest.fixture
def body(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "rows.csv").write_bytes(CONTENT)
    return {"name": "rows", "path": str(tmp_path / "rows.csv"), "reference": False}


def test_a_cluster_that_is_away_is_waited_for(body: dict[str, Any]) -> None:
    cluster = Moody(away=2)
    sent = upload.dataset_sent(Session(cluster), body)  # type: ignore[arg-type]
    assert cluster.waited == 1
    assert sent == {**body, "manifest": sent["manifest"], "is_file": True}
    assert cluster.got[hashlib.sha256(CONTENT).hexdigest()] == CONTENT
    assert hashlib.sha256(cluster.got[sent["manifest"]]).hexdigest() == sent["manifest"]


def test_one_that_stays_away_is_told(body: dict[str, Any]) -> None:
    with pytest.raises(UnavailableError, match="away"):
        upload.dataset_sent(Session(Moody(away=100)), body)  # type: ignore[arg-type]


def test_a_refusal_is_told_at_once(body: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Moody()

    def refuse(*_args: Any, **_given: Any) -> Reply:
        raise DeniedError("you cannot create blobs")

    monkeypatch.setattr(cluster, "request", refuse)
    with pytest.raises(DeniedError, match="cannot create blobs"):
        upload.dataset_sent(Session(cluster), body)  # type: ignore[arg-type]
    assert cluster.waited == 0
