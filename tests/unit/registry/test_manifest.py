"""Manifests as data."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.errors import RefusedError
from fairway.registry import snapshot
from fairway.registry.blob import BlobStore
from fairway.registry.manifest import FolderManifest, ManifestEntry, check, decode, stays_inside

DIGEST = "a" * 64


def test_what_was_encoded_is_decoded() -> None:
    manifest = FolderManifest(
        (
            ManifestEntry("a/b.py", 0o755, 3, DIGEST),
            ManifestEntry("empty/", 0o755),
            ManifestEntry("link", 0o777, symlink="a/b.py"),
        )
    )
    assert decode(manifest.encoded()) == manifest
    assert manifest.size == 3


def test_the_order_of_entries_makes_no_difference() -> None:
    entries = (ManifestEntry("b", sha256=DIGEST), ManifestEntry("a", sha256=DIGEST))
    assert FolderManifest(entries).encoded() == FolderManifest(entries[::-1]).encoded()


def test_names_that_are_no_text_survive() -> None:
    manifest = FolderManifest(
        (ManifestEntry(b"caf\xe9".decode("utf-8", "surrogateescape"), sha256=DIGEST), ManifestEntry("é", sha256=DIGEST))
    )
    assert set(decode(manifest.encoded()).entries) == set(manifest.entries)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"format":1,"entries":[{"x":1}]}', b'{"format":2,"entries":[]}', b"\xff", b"[" * 100_000]
)
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
        [{"path": "a/", "symlink": "b"}, {"path": "a/x"}],
        [{"path": "a/b/top", "symlink": "../.."}, {"path": "up", "symlink": "a/b/top/.."}],
        [{"path": "up", "symlink": "a/b/top/../x"}, {"path": "a/b/top", "symlink": "../.."}],
        [{"path": "a", "symlink": "b"}, {"path": "b", "symlink": "a"}],
        [{"path": "a", "symlink": "x/" * 3000 + "x"}],
        [{"path": f"l{number}", "symlink": f"l{number + 1}"} for number in range(45)],
    ],
)
def test_entries_that_reach_outside_are_refused(entries: list[dict[str, object]]) -> None:
    with pytest.raises(RefusedError):
        decode(json.dumps({"format": 1, "entries": entries}).encode())


@pytest.mark.parametrize(("path", "target"), [("a", "b"), ("a/b", "../c"), ("a/b", "../a/c"), ("a/b/c", "../../x"), ("a", ".")])
def test_links_that_stay_inside(path: str, target: str) -> None:
    assert stays_inside(path, target)
    check((ManifestEntry(path, symlink=target),))


@pytest.mark.parametrize(
    "links",
    [
        {"a/b/top": "../..", "up": "a/b/top/a"},
        {"a/b/top": "../..", "a/b/c/up": "../top/a/b"},
        {f"l{number}": f"l{number + 1}" for number in range(39)},
        {"here": ".", "again": "here/here/here"},
    ],
)
def test_links_through_each_other_that_stay_inside(links: dict[str, str]) -> None:
    check(tuple(ManifestEntry(path, symlink=target) for path, target in links.items()))


NAMES = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map("/".join)
TARGETS = st.lists(st.sampled_from(["a", "b", "c", "..", "..", "."]), min_size=1, max_size=6).map("/".join)


@settings(max_examples=400, deadline=None)
@given(links=st.dictionaries(NAMES, TARGETS | TARGETS.map("a/b/c/d/{}".format), max_size=5))
def test_what_is_laid_out_leads_nowhere_else(tmp_path_factory: pytest.TempPathFactory, links: dict[str, str]) -> None:
    links = {"a/b/c/d": "../../..", **links}
    manifest = FolderManifest(tuple(ManifestEntry(path, 0o777, symlink=target) for path, target in links.items()))
    with tempfile.TemporaryDirectory(dir=tmp_path_factory.getbasetemp()) as made_for_it:
        top = os.path.realpath(made_for_it)
        inside = Path(top, "inside")
        try:
            snapshot.materialise(manifest, BlobStore(Path(top, "blobs")), inside)
        except RefusedError:
            return
        for place, folders, names in os.walk(inside):
            for name in (*folders, *names):
                reached = os.path.realpath(os.path.join(place, name))
                assert (reached + "/").startswith(f"{inside}/"), f"{name} leads to {reached}"
