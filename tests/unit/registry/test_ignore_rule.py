"""Our ignore rules compared with those of git itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairway.registry.folder_scan import scan
from fairway.registry.ignore_rule import IgnoreRules, parse

PATHS = [
    "a.py", "b.txt", "data/x.bin", "data/keep/x.bin", "src/data/y.bin", "src/build/out.o", "build/out.o", "logs/1.log",
    "logs/deep/2.log", "foo/bar/baz.txt", "foo/baz.txt", "a b.txt", "trail ", "#hash", "!bang", "star*name", "q?x",
    "[x].txt", "x1.txt", "x2.txt", "xa.txt", "UPPER.TXT", "doc/a/b/c.md", "doc/c.md", "weird\\name", ".hidden",
    "sub/.hidden", "é.txt",
]  # fmt: skip

RULES = [
    "*.py", "data/", "/data", "data", "build/", "/build/", "*.log", "logs/*", "logs/**", "!logs/1.log", "**/bar",
    "foo/**/baz.txt", "**/foo", "foo/**", "/**/baz.txt", "**", "*", "!*.txt", "a b.txt", "trail\\ ", "trail ",
    "\\#hash", "#hash", "\\!bang", "star\\*name", "q\\?x", "q?x", "\\[x\\].txt", "[x].txt", "x[0-9].txt",
    "x[!0-9].txt", "x[^0-9].txt", "x[12].txt", "x[]1].txt", "x[a-", "x[[:digit:]].txt", "[[:upper:]]*", "doc/*/c.md",
    "doc/**/c.md", "doc/*", "!doc/a", "doc/a/", "weird\\\\name", ".*", "!.hidden", "sub/.hidden", "é.txt", "", "   ",
    "/", "//", "foo/", "!foo/", "foo//bar", "*/", "*/*.txt", "?.py", "a.*", "***", "foo/***", "a**py", "\\",
    "x1.txt\t", "!", "data/**/x.bin",
]  # fmt: skip


class Folder:
    """A folder under git that holds the paths above."""

    def __init__(self, path: Path) -> None:
        self.path = path
        subprocess.run(["git", "init", "--quiet", str(path)], check=True)
        for name in PATHS:
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text("x")

    def write(self, place: str, lines: list[str]) -> None:
        (self.path / place / ".gitignore").write_text("\n".join(lines) + "\n")

    def by_git(self) -> set[str]:
        asked = [name for name in [*PATHS, ".gitignore", "src/.gitignore"] if (self.path / name).exists()]
        completed = subprocess.run(
            [
                "git",
                "-c",
                "core.excludesFile=/dev/null",
                "-c",
                "core.quotePath=false",
                "check-ignore",
                "--no-index",
                "-z",
                "--stdin",
            ],
            cwd=self.path,
            input="\0".join(asked).encode(),
            capture_output=True,
            check=False,
        )
        ignored = {name.decode() for name in completed.stdout.split(b"\0") if name}
        return {name for name in asked if name not in ignored}

    def by_us(self) -> set[str]:
        return set(scan(self.path, ignoring=True).files)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return Folder(tmp_path_factory.mktemp("ignore"))


@pytest.fixture(autouse=True)
def clean(folder: Folder) -> None:
    for place in (".gitignore", "src/.gitignore", "data/.gitignore"):
        (folder.path / place).unlink(missing_ok=True)


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_alone(folder: Folder, rule: str) -> None:
    folder.write("", [rule])
    assert folder.by_us() == folder.by_git()


@pytest.mark.parametrize(
    "rules",
    [
        ["*", "!*.txt"],
        ["*", "!*/", "!*.txt"],
        ["data/*", "!data/keep/"],
        ["data/", "!data/keep/x.bin"],
        ["*.bin", "!x.bin"],
        ["!a.py", "*.py"],
        ["*.py", "# a comment", "", "!a.py"],
        ["/*", "!/foo", "/foo/*", "!/foo/bar"],
    ],
)
def test_rules_together(folder: Folder, rules: list[str]) -> None:
    folder.write("", rules)
    assert folder.by_us() == folder.by_git()


def test_a_file_further_in_decides_over_one_further_out(folder: Folder) -> None:
    folder.write("", ["*.bin", "*.o"])
    folder.write("src", ["!y.bin", "/build"])
    assert folder.by_us() == folder.by_git()
    assert "src/data/y.bin" in folder.by_us()


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    outer=st.lists(st.sampled_from([*RULES, *(f"!{rule}" for rule in RULES)]), max_size=5),
    inner=st.lists(st.sampled_from(RULES), max_size=2),
)
def test_any_rules_together(folder: Folder, outer: list[str], inner: list[str]) -> None:
    folder.write("", outer)
    folder.write("src", inner)
    assert folder.by_us() == folder.by_git()


def test_windows_line_ends_and_a_byte_order_mark(folder: Folder) -> None:
    (folder.path / ".gitignore").write_bytes("\ufeff*.py\r\n*.md\r\n".encode())
    found = folder.by_us()
    assert "a.py" not in found
    assert "doc/c.md" not in found


def test_our_own_file_decides_over_that_of_git(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.bin\n")
    (tmp_path / ".fairwayignore").write_text("!model.bin\n*.txt\n")
    for name in ("model.bin", "other.bin", "notes.txt"):
        (tmp_path / name).touch()
    assert set(scan(tmp_path, ignoring=True).files) == {".gitignore", ".fairwayignore", "model.bin"}


@pytest.mark.parametrize("name", [".git", "__pycache__", ".venv", "x.pyc", ".mypy_cache"])
def test_what_is_left_out_whatever_the_rules_say(name: str) -> None:
    rules = IgnoreRules().below("", [f"!{name}\n"])
    assert rules.leave_out(f"a/{name}", name, True)


def test_names_that_only_look_alike_stay() -> None:
    assert not IgnoreRules().leave_out("xgit", "xgit", True)
    assert not IgnoreRules().leave_out("a.pyc.txt", "a.pyc.txt", False)
    assert parse("# only\n\n") == []
