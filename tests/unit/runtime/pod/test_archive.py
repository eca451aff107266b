"""Archives of others: only what was meant comes out of them, and never outside of the folder."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.runtime.pod import archive
from fairway.runtime.pod.archive import BadArchiveError, digest_of, pack, stays_inside, unpack


def made(*members: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as written:
        for member, content in members:
            member.size = len(content)
            written.addfile(member, io.BytesIO(content))
    packed.seek(0)
    return packed


def named(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member


HOSTILE = {
    "above": made((named("../evil"), b"x")),
    "absolute": made((named("/tmp/evil"), b"x")),
    "within": made((named("a/../../evil"), b"x")),
    "through a link": made((named("a", tarfile.SYMTYPE, "b"), b""), (named("a/evil"), b"x")),
    "below a later link": made((named("a/file"), b"x"), (named("a", tarfile.SYMTYPE, "b"), b"")),
    "a link out": made((named("a", tarfile.SYMTYPE, "../../etc"), b"")),
    "an absolute link": made((named("a", tarfile.SYMTYPE, "/etc/passwd"), b"")),
    "a hard link": made((named("a"), b"x"), (named("b", tarfile.LNKTYPE, "a"), b"")),
    "a device": made((named("a", tarfile.CHRTYPE), b"")),
    "a pipe": made((named("a", tarfile.FIFOTYPE), b"")),
    "twice": made((named("a"), b"x"), (named("a"), b"y")),
    "a folder as a file": made((named("a"), b"x"), (named("a/", tarfile.DIRTYPE), b"")),
    "nothing": io.BytesIO(b""),
    "no archive": io.BytesIO(b"hello" * 1000),
}


@pytest.mark.parametrize("what", sorted(HOSTILE))
def test_what_would_reach_outside_is_refused(what: str, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    HOSTILE[what].seek(0)
    with pytest.raises((BadArchiveError, OSError)):
        unpack(HOSTILE[what], str(inside))
    assert os.listdir(tmp_path) == ["inside"], "nothing lies beside the folder"


def test_more_members_than_anybody_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST", 3)
    with pytest.raises(BadArchiveError, match="more than 3 members"):
        unpack(made(*((named(f"file-{number}"), b"") for number in range(4))), str(tmp_path))


def test_an_archive_that_breaks_off_is_never_taken_for_a_whole_one(tmp_path: Path) -> None:
    whole = made((named("one"), b"1" * 5000), (named("two"), b"2" * 5000)).getvalue()
    right = digest_of(unpack(io.BytesIO(whole), str(tmp_path)))
    # At the last the archive's own end is cut, and everything is there.
    for number, length in enumerate(range(0, 2 * 5120 + 2 * 512, 256)):
        folder = tmp_path / f"cut-{number}"
        folder.mkdir()
        try:
            found = digest_of(unpack(io.BytesIO(whole[:length]), str(folder)))
        except BadArchiveError:
            continue
        assert found != right, f"{length} bytes of {len(whole)} counted as all of it"


def test_a_folder_comes_out_as_it_went_in(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    (source / "inner" / "a file").write_bytes(os.urandom(3_000_000))
    (source / "run.sh").write_text("true")
    (source / "run.sh").chmod(0o755)
    (source / "link").symlink_to("run.sh")
    os.mkfifo(source / "pipe")
    target = tmp_path / "target"
    target.mkdir()
    entries = unpack(io.BytesIO(b"".join(pack(str(source)))), str(target))
    assert [entry["path"] for entry in entries] == ["inner/a file", "run.sh"], "links and pipes do not travel"
    assert (target / "inner" / "a file").read_bytes() == (source / "inner" / "a file").read_bytes()
    assert os.access(target / "run.sh", os.X_OK)


PATHS = st.lists(st.sampled_from(["a", "b", "..", ".", "", "c"]), min_size=1, max_size=6).map("/".join)


@given(path=st.sampled_from(["x", "a/x", "a/b/x"]), target=PATHS)
def test_a_link_that_stays_inside_stays_inside(path: str, target: str) -> None:
    if stays_inside(path, target):
        reached = os.path.normpath(os.path.join("/top", os.path.dirname(path), target))
        assert reached == "/top" or reached.startswith("/top/")
