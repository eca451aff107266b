"""Untrusted archives: only the intended files are extracted, and never outside of the folder."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairway.runtime.pod import archive
from fairway.runtime.pod.archive import BadArchiveError, TooLargeError, digest_of, pack, stays_inside, unpack


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
    "a link out through another": made(
        (named("a/b/top", tarfile.SYMTYPE, "../.."), b""), (named("up", tarfile.SYMTYPE, "a/b/top/.."), b"")
    ),
    "a link out through a later one": made(
        (named("up", tarfile.SYMTYPE, "a/b/top/.."), b""), (named("a/b/top", tarfile.SYMTYPE, "../.."), b"")
    ),
    "links in a circle": made((named("a", tarfile.SYMTYPE, "b"), b""), (named("b", tarfile.SYMTYPE, "a"), b"")),
    "a file below a file": made((named("a"), b"x"), (named("a/b"), b"x")),
    "a name that is too long": made((named("n" * 300), b"x")),
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
    with pytest.raises(BadArchiveError):
        unpack(HOSTILE[what], str(inside))
    assert os.listdir(tmp_path) == ["inside"], "nothing lies beside the folder"


def test_more_members_than_anybody_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST", 3)
    with pytest.raises(BadArchiveError, match="more than 3 members"):
        unpack(made(*((named(f"file-{number}"), b"") for number in range(4))), str(tmp_path))


def test_an_archive_that_breaks_off_is_never_taken_for_a_whole_one(tmp_path: Path) -> None:
    whole = made((named("one"), b"1" * 5000), (named("two"), b"2" * 5000)).getvalue()
    right = digest_of(unpack(io.BytesIO(whole), str(tmp_path)))
    # In the last cases only the archive's own end is cut off, and all content is there.
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


NAMES = st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=4).map("/".join)
BAD_NAMES = st.sampled_from(["../canary", "/tmp/evil", "a/../../canary", "a//b", "./a", "a/.", "..", ""])
TARGETS = st.lists(st.sampled_from(["a", "b", "c", "d", "..", "..", "."]), min_size=1, max_size=6).map("/".join)
BAD_TARGETS = st.sampled_from(["/", "../canary", "/etc/passwd", "a/" * 3000])
_Member = tuple[bytes, str, str]


@st.composite
def chains(draw: st.DrawFn) -> list[_Member]:
    """Draw two links that each stay inside as text, but may lead outside together."""
    place = draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3))
    deep = "/".join([*place, "d"])
    up = "/".join([".."] * draw(st.integers(1, len(place)))) or "."
    through = "/".join([deep, *[".."] * draw(st.integers(0, 2)), *draw(st.sampled_from([[], ["canary"], ["a"]]))])
    first: _Member = (tarfile.SYMTYPE, deep, up)
    return draw(st.permutations([first, (tarfile.SYMTYPE, "top", through)]))


MEMBERS = st.lists(
    st.one_of(
        st.tuples(st.just(tarfile.SYMTYPE), NAMES, st.one_of(TARGETS, TARGETS, TARGETS, BAD_TARGETS)),
        st.tuples(st.just(tarfile.REGTYPE), st.one_of(NAMES, NAMES, NAMES, BAD_NAMES), st.just("")),
        st.tuples(st.just(tarfile.DIRTYPE), NAMES, st.just("")),
        st.tuples(st.just(tarfile.LNKTYPE), NAMES, st.one_of(NAMES, st.sampled_from(["../canary", "/etc/passwd"]))),
        st.tuples(st.sampled_from([tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE]), NAMES, st.just("")),
    ),
    max_size=7,
) | st.builds(
    lambda chain, more: [*chain, *more],
    chains(),
    st.lists(st.tuples(st.sampled_from([tarfile.REGTYPE, tarfile.SYMTYPE]), NAMES, TARGETS), max_size=2),
)


def check_inside(top: Path) -> None:
    """Check that everything below a folder resolves, through any links, to something below it."""
    for place, folders, names in os.walk(top):
        for name in (*folders, *names):
            path = os.path.join(place, name)
            reached = os.path.realpath(path)
            assert reached == str(top) or reached.startswith(f"{top}/"), f"{path} leads to {reached}"
            if os.path.islink(path):
                assert _content(path) != "CANARY" != _content(os.path.join(path, "canary"))
            else:
                state = os.lstat(path)
                assert stat.S_ISDIR(state.st_mode) or (stat.S_ISREG(state.st_mode) and state.st_nlink == 1), path


def _content(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


@pytest.mark.parametrize("copies", [False, True])
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(members=MEMBERS)
def test_whatever_an_archive_holds_nothing_leaves_the_folder(
    tmp_path_factory: pytest.TempPathFactory, copies: bool, members: list[tuple[bytes, str, str]]
) -> None:
    with tempfile.TemporaryDirectory(dir=tmp_path_factory.getbasetemp()) as made_for_it:
        top = Path(os.path.realpath(made_for_it))
        (top / "canary").write_text("CANARY")
        inside = top / "inside"
        inside.mkdir()
        packed = made(*((named(name, kind, link), b"x" if kind == tarfile.REGTYPE else b"") for kind, name, link in members))
        try:
            entries = unpack(packed, str(inside), copies=copies)
        except BadArchiveError:
            entries = []
        else:
            assert len(entries) == len(members)
        check_inside(inside)
        assert sorted(os.listdir(top)) == ["canary", "inside"]
        assert (top / "canary").read_text() == "CANARY"
        assert (top / "canary").stat().st_nlink == 1


def test_hard_links_to_files_of_the_archive_become_copies_where_asked_for(tmp_path: Path) -> None:
    entries = unpack(made((named("a/x"), b"hello"), (named("y", tarfile.LNKTYPE, "a/x"), b"")), str(tmp_path), copies=True)
    assert (tmp_path / "y").read_text() == "hello"
    assert (tmp_path / "y").stat().st_nlink == 1
    assert entries[0]["sha256"] == entries[1]["sha256"]


def test_more_bytes_than_allowed_are_refused_copies_too(tmp_path: Path) -> None:
    with pytest.raises(TooLargeError):
        unpack(made((named("a"), b"x" * 100)), str(tmp_path), limit=99)
    copies = [(named(f"copy-{number}", tarfile.LNKTYPE, "b"), b"") for number in range(50)]
    with pytest.raises(TooLargeError):
        unpack(made((named("b"), b"x" * 100), *copies), str(tmp_path), limit=1000, copies=True)


def test_many_members_are_taken_in_time(tmp_path: Path) -> None:
    links = [
        (named(f"d/l{number}", tarfile.SYMTYPE, f"../d/l{number // 2 - 1}" if number > 1 else "x"), b"") for number in range(3000)
    ]
    began = time.monotonic()
    assert len(unpack(made(*links), str(tmp_path))) == 3000
    assert time.monotonic() - began < 60
