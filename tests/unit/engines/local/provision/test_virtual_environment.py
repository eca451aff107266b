"""Environments from requirements, built for real from packages created here."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fairway.engines.local.provision import virtual_environment
from fairway.engines.local.provision.virtual_environment import VirtualEnvironments
from fairway.errors import RefusedError

OFFLINE = {"PATH": os.environ["PATH"], "PIP_NO_INDEX": "1", "UV_OFFLINE": "1", "UV_NO_INDEX": "1", "HOME": "/nonexistent"}


def wheel(folder: Path, version: str = "1.0") -> Path:
    """Create a package `tiny` with a program of the same name."""
    path = folder / f"tiny-{version}-py3-none-any.whl"
    info = f"tiny-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny.py", f"VERSION = {version!r}\ndef main():\n    import sys\n    print(VERSION, sys.prefix)\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/entry_points.txt", "[console_scripts]\ntiny = tiny:main\n")
        archive.writestr(
            f"{info}/RECORD", f"tiny.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/entry_points.txt,,\n{info}/RECORD,,\n"
        )
    return path


@pytest.fixture
def requirements(tmp_path: Path) -> Path:
    path = tmp_path / "requirements.txt"
    path.write_text(f"--find-links {wheel(tmp_path).parent}\ntiny==1.0\n")
    return path


def environments(tmp_path: Path) -> VirtualEnvironments:
    return VirtualEnvironments(tmp_path / "envs", {**OFFLINE, "UV_CACHE_DIR": str(tmp_path / "cache")})


@pytest.mark.parametrize("tool", ["uv", pytest.param("pip", marks=pytest.mark.slow)])
def test_programs_of_the_environment_run_from_where_it_is(
    tmp_path: Path, requirements: Path, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tool == "pip":
        monkeypatch.setattr(virtual_environment, "_uv", lambda: "")
    said: list[str] = []
    place = asyncio.run(environments(tmp_path).provide(requirements, sys.executable, said.append))
    done = subprocess.run([place / "bin" / "tiny"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1.0", str(place)]
    assert said[0] == f"building an environment from requirements.txt with {tool}"
    assert [path.name for path in (tmp_path / "envs").iterdir()] == [place.name]


def test_several_at_once_build_it_once(tmp_path: Path, requirements: Path) -> None:
    said: list[str] = []

    async def go() -> set[Path]:
        ours = environments(tmp_path)
        return set(await asyncio.gather(*(ours.provide(requirements, sys.executable, said.append) for _ in range(4))))

    assert len(asyncio.run(go())) == 1
    assert sum(line.startswith("building") for line in said) == 1


def test_the_next_daemon_finds_it(tmp_path: Path, requirements: Path) -> None:
    first = asyncio.run(environments(tmp_path).provide(requirements, sys.executable, lambda _: None))
    said: list[str] = []
    assert asyncio.run(environments(tmp_path).provide(requirements, sys.executable, said.append)) == first
    assert said == []


def test_a_failed_build_says_what_the_installer_said_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("no-such-package-anywhere==9.9\n")
    with pytest.raises(RefusedError, match="no-such-package-anywhere") as caught:
        asyncio.run(environments(tmp_path).provide(path, sys.executable, lambda _: None))
    assert "exit code" in caught.value.message
    assert list((tmp_path / "envs").iterdir()) == []


def test_an_included_file_and_the_code_behind_local_paths_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    async def pretend(_self: VirtualEnvironments, target: Path, *_: object) -> None:
        built.append(target.name)
        target.mkdir(parents=True)

    monkeypatch.setattr(VirtualEnvironments, "_build", pretend)
    path = tmp_path / "requirements.txt"

    def provide(salt: str = "") -> str:
        return asyncio.run(environments(tmp_path).provide(path, sys.executable, lambda _: None, salt)).name

    path.write_text("-r more.txt\n")
    (tmp_path / "more.txt").write_text("a==1\n-r requirements.txt\n")
    first = provide()
    assert provide("other code") == first
    (tmp_path / "more.txt").write_text("a==2\n")
    second = provide()
    assert second != first
    (tmp_path / "more.txt").write_text("-e .\n")
    assert provide("one") != provide("two")
    assert len(built) == 4


def test_a_missing_file_or_interpreter_is_refused(tmp_path: Path, requirements: Path) -> None:
    with pytest.raises(RefusedError, match="cannot be read"):
        asyncio.run(environments(tmp_path).provide(tmp_path / "gone.txt", sys.executable, lambda _: None))
    with pytest.raises(RefusedError, match="no interpreter"):
        asyncio.run(environments(tmp_path).provide(requirements, str(tmp_path / "python"), lambda _: None))
    with pytest.raises(RefusedError, match="does not run"):
        asyncio.run(environments(tmp_path).provide(requirements, "/bin/false", lambda _: None))
