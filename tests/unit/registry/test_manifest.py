"""Manifests as data."""

from __future__ import annotations

import json

import pytest

from fairway.errors import RefusedError
from fairway.registry.manifest import Entry, Manifest, check, decode, stays_inside

DIGEST = "a" * 64


def test_what_was_encoded_is_decoded() -> None:
    manifest = Manifest((Entry("a/b.py", 0o755, 3, DIGEST), Entry("empty/", 0o755), Entry("link", 0o777, symlink="a/b.py")))
    assert decode(manifest.encoded()) == manifest
    assert manifest.size == 3


def test_the_order_of_entries_makes_no_difference() -> None:
    entries = (Entry("b", sha256=DIGEST), Entry("a", sha256=DIGEST))
    assert Manifest(entries).encoded() == Manifest(entries[::-1]).encoded()


def test_names_that_are_no_text_survive() -> None:
    manifest = Manifest((Entry(b"caf\xe9".decode("utf-8", "surrogateescape"), sha256=DIGEST), Entry("é", sha256=DIGEST)))
    assert set(decode(manifest.encoded()).entries) == set(manifest.entries)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"format":1,"entries":[{"x":1}]}', b'{"format":2,"entries":[]}', b"\xff"])
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(RefusedError):
        decode(data)


@pytest.mark.parametrize(
    "entries",
    [
        [{"path": "../x"}],
        [{"path": "/x"}],
        [{"path": "a//b"}],
        [{"path": "a/../b"}],
        [{"path": "./a"}],
        [{"path": ""}],
        [{"path": "/"}],
        [{"path": "a\0b"}],
        [{"path": "a"}, {"path": "a"}],
        [{"path": "a/"}, {"path": "a"}],
        [{"path": "a", "symlink": "b"}, {"path": "a/x"}],
        [{"path": "a", "symlink": "b"}, {"path": "a/x/y"}],
        [{"path": "a", "symlink": ".."}],
        [{"path": "a/b", "symlink": "../../x"}],
        [{"path": "a/b", "symlink": "c/../../../x"}],
        [{"path": "a", "symlink": "/etc/passwd"}],
        [{"path": 7}],
    ],
)
def test_entries_that_reach_outside_are_refused(entries: list[dict[str, object]]) -> None:
    with pytest.raises(RefusedError):
        decode(json.dumps({"format": 1, "entries": entries}).encode())


@pytest.mark.parametrize(("path", "target"), [("a", "b"), ("a/b", "../c"), ("a/b", "../a/c"), ("a/b/c", "../../x"), ("a", ".")])
def test_links_that_stay_inside(path: str, target: str) -> None:
    assert stays_inside(path, target)
    check((Entry(path, symlink=target),))
