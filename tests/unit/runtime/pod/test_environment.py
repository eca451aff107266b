"""Environments from requirements: built once in a temporary folder, on top of the interpreter's packages; errors in one line."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fairway.runtime.pod import environment

WHEEL = """\
Wheel-Version: 1.0
Generator: test
Root-Is-Purelib: true
Tag: py3-none-any
"""


def wheel(folder: Path, name: str = "greeting", version: str = "1.0") -> Path:
    """Create a package of our own, so that no package index is used."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", f"def main():\n    print('hello {version}')\n")
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{about}/WHEEL", WHEEL)
        archive.writestr(f"{about}/entry_points.txt", f"[console_scripts]\n{name} = {name}:main\n")
        archive.writestr(f"{about}/RECORD", f"{name}.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/entry_points.txt,,\n")
    return path


@pytest.fixture(params=["uv", "pip"])
def tool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Make each of the two installers in turn the only one available."""
    name = str(request.param)
    found = [sys.executable, "-m", "uv"] if name == "uv" else [sys.executable, "-m", "pip"]
    if subprocess.run([*found, "--version"], capture_output=True, check=False).returncode:
        pytest.skip(f"{name} is not installed here")
    places = str(Path(sys.executable).parent) if name == "uv" else str(tmp_path / "nothing")
    monkeypatch.setenv("PATH", places)
    return name


def code(folder: Path, text: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "requirements.txt").write_text(text)
    return str(folder / "requirements.txt")


def test_an_environment_adds_to_the_image_and_is_made_once(tool: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel(tmp_path / "wheels")
    asked = code(tmp_path / "code", "--no-index\n--find-links ../wheels\n-r more.txt\n")
    (tmp_path / "code" / "more.txt").write_text("greeting==1.0\n")
    (tmp_path / "link").mkdir()
    arguments = ["--requirements", asked, "--cache", str(tmp_path / "cache"), "--link", str(tmp_path / "link")]
    assert environment.main(arguments) == 0
    assert f"with {tool}" in capsys.readouterr().out
    assert environment.main(arguments) == 0
    assert "making" not in capsys.readouterr().out, "the second pod finds it"
    active = environment.activated({"PATH": "/usr/bin"}, str(tmp_path / "link"))
    assert active["PATH"].endswith(":/usr/bin")
    said = subprocess.run(["greeting"], env=active, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert said == "hello 1.0\n", "its scripts know where it lies"
    also = subprocess.run(["python", "-c", "import greeting, msgspec"], env=active, check=False)
    assert also.returncode == 0, "what the image has is there too"
    (tmp_path / "code" / "more.txt").write_text("no-such-package\n")
    assert environment.main(arguments) == 1, "an include that changed makes another"


def test_what_cannot_be_had_is_said_in_the_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))  # with uv, which is the faster one
    asked = code(tmp_path / "code", "--no-index\nno-such-package==1\n")
    (tmp_path / "link").mkdir()
    arguments = ["--cache", str(tmp_path / "cache"), "--link", str(tmp_path / "link")]
    assert environment.main(["--requirements", asked, *arguments]) == 1
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("no environment could be created from requirements.txt: ")
    assert "no-such-package" in last
    assert "fix: " in last
    assert os.listdir(tmp_path / "cache") == [], "a build that failed leaves nothing"
    assert environment.main(["--requirements", asked + "x", *arguments]) == 1
    assert "requirements.txtx cannot be read (No such file or directory); fix:" in capsys.readouterr().err


def test_an_image_without_an_installer_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    program = "import sys; from fairway.runtime.pod import environment; sys.exit(environment.main())"
    asked = code(tmp_path / "code", "greeting\n")
    command = [str(bare / "bin" / "python"), "-c", program, "--requirements", asked, "--cache", str(tmp_path / "cache")]
    source = str(Path(environment.__file__).parents[3])
    completed = subprocess.run(
        [*command, "--link", str(tmp_path)], env={"PYTHONPATH": source, "PATH": ""}, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 1
    assert completed.stderr.splitlines()[-1].startswith("environment.requirements needs uv or pip (22.3 or newer) in the image")
    del capsys
