"""Imports that an interpreter can do before its program runs, without the program noticing. The program is parsed, never run."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Sequence

FRAMEWORK = "torch"
_EARLY = frozenset({"numpy", "torch", "torchvision"})
"""Packages that may be imported ahead, in the program's order."""
_HARMLESS = frozenset(sys.stdlib_module_names) | {"fairway", "__future__"}
"""Packages that may precede them and are left to the program."""
_WITH_OPTIMIZER = "torch._dynamo"
"""Imported by the first optimizer of a program; it takes as long as the framework itself."""
_PYTHON = re.compile(r"python(3(\.\d+)?)?")


def script_of(argv: Sequence[str]) -> str:
    """Return the script of a plain `python script.py ...`; empty for any other command."""
    plain = len(argv) > 1 and bool(_PYTHON.fullmatch(argv[0].rpartition("/")[2])) and argv[1].endswith(".py")
    return argv[1] if plain and not argv[1].startswith("-") else ""


def early_imports(text: str) -> tuple[str, ...]:
    """Return the modules to import ahead; none when the program does not begin with an import of the framework.

    Only the imports at the very top count, up to the first other statement and the first unknown package: what precedes an import
    may be there to change its effect.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    modules: list[str] = []
    for statement in tree.body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        names = _imported(statement)
        roots = {name.partition(".")[0] for name in names}
        if not names or not roots <= _EARLY | _HARMLESS:
            break
        modules += [name for name in names if name.partition(".")[0] in _EARLY]
    if not any(name.partition(".")[0] == FRAMEWORK for name in modules):
        return ()
    return (*dict.fromkeys(modules), *([_WITH_OPTIMIZER] if _optimizes(tree) else []))


def _imported(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    if isinstance(statement, ast.ImportFrom) and statement.level == 0 and statement.module:
        return [statement.module]
    return []


def _optimizes(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "optim":
            return True
        if isinstance(node, ast.Import | ast.ImportFrom):
            words = [alias.name for alias in node.names] + [getattr(node, "module", "") or ""]
            if any("optim" in word.split(".") for word in words):
                return True
    return False
