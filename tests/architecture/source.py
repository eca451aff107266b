"""The source tree as the architecture tests read it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "fairway"


def modules(*packages: str) -> list[Path]:
    """Return every module of the package, or of the given sub-packages, in order."""
    places = [PACKAGE / name for name in packages] or [PACKAGE]
    return sorted(path for place in places for path in place.rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    """Return the parsed module."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def name_of(path: Path) -> str:
    """Return a path relative to the package, such as `plan/job.py`, for messages and exceptions."""
    return path.relative_to(PACKAGE).as_posix()


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield every function of a module as (qualified name, lines without decorators)."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{prefix}{child.name}", (child.end_lineno or child.lineno) - child.lineno + 1
                yield from walk(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.ClassDef):
                yield from walk(child, f"{prefix}{child.name}.")
            else:
                yield from walk(child, prefix)

    yield from walk(tree(path), "")
