"""Uploads of pods: a checkpoint is stored completely or not at all, and no upload reaches any other path."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairway.app.system import crash_point
from fairway.errors import NotFoundError, RefusedError
from fairway.registry.upload.run_upload import RunUploads
from fairway.runtime.checkpoint_folder import describe
from fairway.runtime.pod import archive


def checkpoint(folder: Path, step: int, sequence: int = 1, manifest: dict[str, Any] | None = None) -> Path:
    """Create a checkpoint as a run writes it, with these entries replaced in its manifest."""
    place = folder / f"step-{step:012d}"
    (place / "inner").mkdir(parents=True, exist_ok=True)
    (place / "inner" / "model.pt").write_bytes(b"weights")
    about = {"step": step, "sequence": sequence, "world_size": 1, "meta": {}, "time": 1.0}
    listed = {"inner/model.pt": describe(place / "inner" / "model.pt")}
    (place / "manifest.json").write_text(json.dumps({**about, "files": listed, **(manifest or {})}))
    return place


def packed(place: Path) -> bytes:
    return b"".join(archive.pack(str(place)))


def keep(carried: RunUploads, data: bytes, name: str, keep: int = 3, run: str = "mnist-1") -> None:
    with carried.arriving() as path:
        path.write_bytes(data)
        carried.keep_checkpoint("team", run, name, path, keep)


@pytest.fixture
def carried(tmp_path: Path) -> RunUploads:
    return RunUploads(tmp_path / "carried")


def test_the_newest_is_the_one_saved_last_and_old_ones_go(carried: RunUploads, tmp_path: Path) -> None:
    for sequence, step in enumerate((10, 30, 20, 40), 1):
        keep(carried, packed(checkpoint(tmp_path, step, sequence)), f"step-{step:012d}", keep=2)
    assert [one.step for one in carried.checkpoints("team", "mnist-1")] == [40, 20]
    assert carried.checkpoint("team", "mnist-1", "latest").step == 40
    assert carried.checkpoint("team", "mnist-1", "step-000000000020").sequence == 3
    with pytest.raises(NotFoundError, match="other/mnist-1 has no checkpoint here"):
        carried.checkpoint("other", "mnist-1", "latest")
    assert carried.runs() == [("team", "mnist-1")]
    carried.forget("team", "mnist-1")
    assert carried.checkpoints("team", "mnist-1") == []


def test_the_same_checkpoint_again_changes_nothing(carried: RunUploads, tmp_path: Path) -> None:
    data = packed(checkpoint(tmp_path, 10))
    for _ in range(2):
        keep(carried, data, "step-000000000010")
    assert len(carried.checkpoints("team", "mnist-1")) == 1


def sparse(size: int) -> bytes:
    """Return an archive member that claims this size, and is nothing but a hole."""
    member = tarfile.TarInfo("inner/model.pt")
    member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(size)}
    content = b"0\n".ljust(512, b"\0")
    member.size = len(content)
    return member.tobuf(tarfile.PAX_FORMAT) + content


def huge_header() -> bytes:
    member = tarfile.TarInfo("x")
    member.type, member.size = tarfile.XHDTYPE, 1 << 40
    return member.tobuf(tarfile.GNU_FORMAT)


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", content: bytes = b"") -> bytes:
    return archive.header(name, len(content), kind=kind, link=link) + content + archive.padding(len(content))


HOSTILE: dict[str, Callable[[bytes], bytes]] = {
    "cut in the middle": lambda data: data[:1000],
    "cut before its end": lambda data: data[:-1024],
    "without its manifest": lambda _: member("inner/model.pt", content=b"weights") + archive.END,
    "with a file more": lambda data: data[:-1024] + member("evil", content=b"x") + archive.END,
    "with a file above": lambda data: data[:-1024] + member("../evil", content=b"x") + archive.END,
    "with a link": lambda data: data[:-1024] + member("link", tarfile.SYMTYPE, "/etc/passwd") + archive.END,
    "with a hard link": lambda data: data[:-1024] + member("link", tarfile.LNKTYPE, "inner/model.pt") + archive.END,
    "with a device": lambda data: data[:-1024] + member("null", tarfile.CHRTYPE) + archive.END,
    "with a file twice": lambda data: data[:-1024] + data,
    "with a hole of an exabyte": lambda data: sparse(1 << 60) + data,
    "with a header of a terabyte": lambda data: huge_header() + data,
    "other content": lambda data: data.replace(b"weights", b"WEIGHTS"),
    "nothing": lambda _: b"",
    "only an end": lambda _: archive.END,
    "no archive": lambda _: os.urandom(4096),
}


@pytest.mark.parametrize("what", sorted(HOSTILE))
def test_what_is_no_whole_checkpoint_is_refused_and_leaves_nothing(carried: RunUploads, tmp_path: Path, what: str) -> None:
    keep(carried, packed(checkpoint(tmp_path, 10)), "step-000000000010")
    data = HOSTILE[what](packed(checkpoint(tmp_path, 20, 2)))
    with pytest.raises(RefusedError, match="refused"):
        keep(carried, data, "step-000000000020", keep=1)
    assert [one.step for one in carried.checkpoints("team", "mnist-1")] == [10], "the one before stays"
    assert [path.name for path in (tmp_path / "carried" / ".arriving").iterdir()] == []


@pytest.mark.parametrize(
    "manifest",
    [
        {"step": "20"},
        {"step": -1},
        {"step": 21},
        {"sequence": -1},
        {"sequence": 10**12},
        {"sequence": None},
        {"files": []},
        {"files": {"inner/model.pt": 1}},
        {"files": {}},
        {"files": {"inner/model.pt": {"size": 7}}},
    ],
)
def test_a_manifest_that_says_something_else_is_refused(carried: RunUploads, tmp_path: Path, manifest: dict[str, Any]) -> None:
    with pytest.raises(RefusedError):
        keep(carried, packed(checkpoint(tmp_path, 20, manifest=manifest)), "step-000000000020")
    assert carried.checkpoints("team", "mnist-1") == []


@pytest.mark.parametrize("name", ["..", "step-1", "step-000000000020/../x", "latest", ""])
def test_names_lead_nowhere_else(carried: RunUploads, tmp_path: Path, name: str) -> None:
    with pytest.raises(RefusedError):
        keep(carried, packed(checkpoint(tmp_path, 20)), name)
    with pytest.raises(RefusedError), carried.arriving() as path:
        path.write_bytes(packed(checkpoint(tmp_path, 20)))
        carried.keep_output("team", "..", name or "model", path)


def output(carried: RunUploads, *files: tuple[str, bytes]) -> None:
    with carried.arriving() as path:
        path.write_bytes(b"".join(member(name, content=content) for name, content in files) + archive.END)
        carried.keep_output("team", "mnist-1", "model", path)


def test_what_several_tasks_bring_lies_together_as_in_a_shared_folder(carried: RunUploads) -> None:
    output(carried, ("model.onnx", b"1"), ("inner/a", b"1"))
    output(carried, ("inner/a", b"2"), ("inner/b", b"2"))
    found = carried.output("team", "mnist-1", "model")
    assert {str(path.relative_to(found)): path.read_bytes() for path in found.rglob("*") if path.is_file()} == {
        "model.onnx": b"1",
        "inner/a": b"2",
        "inner/b": b"2",
    }


def test_outputs_that_reach_outside_or_contradict_are_refused(carried: RunUploads, tmp_path: Path) -> None:
    for name in ("../evil", "/etc/evil", "a/../../evil"):
        with pytest.raises(RefusedError):
            output(carried, ("fine", b"1"), (name, b"x"))
    assert not carried.output("team", "mnist-1", "model").exists()
    output(carried, ("inner/a", b"1"))
    with pytest.raises(RefusedError, match="same name"):
        output(carried, ("inner", b"x"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["carried"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_leaves_a_whole_checkpoint_or_none(
    carried: RunUploads, tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Died

    keep(carried, packed(checkpoint(tmp_path, 10)), "step-000000000010")
    monkeypatch.setattr(os, "rename", die if when == "before" else os.rename)
    monkeypatch.setattr(Path, "unlink", die if when == "after" else Path.unlink)
    with pytest.raises(Died):
        keep(carried, packed(checkpoint(tmp_path, 20, 2)), "step-000000000020", keep=1)
    monkeypatch.undo()
    again = RunUploads(tmp_path / "carried")
    again.tidy()
    assert again.checkpoint("team", "mnist-1", "latest").step == (10 if when == "before" else 20)
    assert crash_point.POINTS, "each rename and removal passes one of these"
    with tarfile.open(fileobj=io.BytesIO(again.checkpoint("team", "mnist-1", "latest").path.read_bytes())) as whole:
        assert sorted(whole.getnames()) == ["inner/model.pt", "manifest.json"]
