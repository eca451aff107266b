"""Docstrings, comments and pages name the actor: pronouns that hide who acts are banned.

The list is short on purpose: each word stood for a missing subject ("nobody writes" for "the lock is free"). Text in backticks is
code and may hold any word.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from source import ROOT

BANNED = re.compile(
    r"\b(nobody|whoever|whomever|somebody|someone|everybody|everyone|anybody|anyone|whom|is told|is said)\b", re.IGNORECASE
)
FOLDERS = ("src", "tests", "benchmarks", "examples", "demo")
PAGES = (
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "examples").rglob("*.md"),
    *(ROOT / "benchmarks").glob("*.md"),
)
EXCEPTIONS = {Path(__file__).relative_to(ROOT).as_posix()}
"""This file names the words."""


def prose(text: str) -> str:
    """Return the text without code: fenced blocks and backticks become blanks."""
    text = re.sub(r"```.*?```", lambda block: re.sub(r"[^\n]", " ", block.group()), text, flags=re.DOTALL)
    return re.sub(r"`[^`\n]*`", lambda code: " " * len(code.group()), text)


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield docstrings, attribute docstrings and comments, each with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def offences(source: str) -> list[str]:
    """Return the banned words in the docstrings and comments of a program."""
    return [f"line {line}: {word}" for line, text in texts(source) for word in BANNED.findall(prose(text))]


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_and_comments_name_the_actor(folder: str) -> None:
    found = {
        name: words
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (name := path.relative_to(ROOT).as_posix()) not in EXCEPTIONS and (words := offences(path.read_text(encoding="utf-8")))
    }
    assert found == {}, "name the process or the person that acts; docs/glossary.md has the terms"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_name_the_actor(page: Path) -> None:
    lines = enumerate(prose(page.read_text(encoding="utf-8")).splitlines(), 1)
    assert [f"line {line}: {word}" for line, text in lines for word in BANNED.findall(text)] == []


def test_offences_are_seen() -> None:
    source = '"""Whoever asks."""\nLIMIT = 1\n"""What nobody needs; `nobody` is a user."""\nname = "somebody"  # for someone\n'
    assert sorted(offences(source)) == ["line 1: Whoever", "line 3: nobody", "line 4: someone"]
    assert BANNED.findall(prose("`whom` and\n```\nnobody\n```\nthe owner")) == []
