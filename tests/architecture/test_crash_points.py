"""Every action of the daemon that a crash could interrupt is a named crash point, so that the fault tests can crash there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from source import modules, name_of, tree

from fairway.app.system import crash_point

IN_THE_SUPERVISOR = "runs in the supervisor, a process of its own; the tests kill that one from outside"
OUTSIDE: dict[str, str] = {
    "app/system/crash_point.py os.kill": "the crash itself",
    "engines/local/supervision/process/descendant.py os.kill": IN_THE_SUPERVISOR,
    "engines/local/supervision/process/process_identity.py signal.pidfd_send_signal": "the callers of `send` have the point",
    "engines/local/machine_folder.py os.rename": "the caller that takes a lock has the point",
    "engines/local/provision/program_run.py os.killpg": "ends an installer; its files are discarded",
    "engines/local/supervision/attempt_record.py os.rename": IN_THE_SUPERVISOR,
    "engines/local/supervision/spare_process.py os.kill": IN_THE_SUPERVISOR,
    "engines/local/supervision/supervisor.py os.kill": IN_THE_SUPERVISOR,
    "engines/local/supervision/supervisor.py os.killpg": IN_THE_SUPERVISOR,
    "registry/blob.py os.link": "into a folder that is renamed when it is whole, or under a name that is renamed",
    "registry/snapshot.py os.rename": "`_rename_folder`: its callers have the point",
}
"""Actions that need no crash point where they are, with the reason."""

KNOWN = {*crash_point.POINTS, *crash_point.SERVING_POINTS, *crash_point.RECOVERY_POINTS, *crash_point.API_POINTS}
OTHER_PROCESSES = (
    *("serving/replica/", "serving/predict/", "serving/bench/"),
    *("serving/router/keeper.py", "serving/router/process.py", "serving/router/control_socket.py"),
)
"""Modules of serving that do not run in the daemon; the tests kill their processes from outside."""
SPAWNS = {("os", "posix_spawn"), ("subprocess", "run"), ("subprocess", "Popen")}
"""Checked only in serving: the programs that prepare what engines spawn may be interrupted anywhere."""
SIGNALS = {("os", "kill"), ("os", "killpg"), ("signal", "pidfd_send_signal")}
RENAMES = {("os", "rename"), ("os", "replace"), ("os", "link"), ("shutil", "move")}


def acts(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield renames, signals and commits outside of `with crash_point.reach(...)`, as (line, action)."""

    def walk(node: ast.AST, covered: bool) -> Iterator[tuple[int, str]]:
        if isinstance(node, ast.With | ast.AsyncWith):
            covered = covered or any(_is_reach(item.context_expr) for item in node.items)
        if isinstance(node, ast.Call) and not covered:
            what = _act(node)
            if what:
                yield node.lineno, what
        for child in ast.iter_child_nodes(node):
            yield from walk(child, covered)

    yield from walk(module, False)


def _is_reach(expression: ast.expr) -> bool:
    return isinstance(expression, ast.Call) and ast.unparse(expression.func).endswith("crash_point.reach")


def _act(call: ast.Call) -> str:
    if not isinstance(call.func, ast.Attribute):
        return ""
    owner, name = ast.unparse(call.func.value), call.func.attr
    if (owner, name) in SIGNALS | RENAMES | SPAWNS:
        return f"{owner}.{name}"
    if name in ("rename", "replace") and len(call.args) == 1 and not call.keywords and owner != "dataclasses":
        return f"{owner}.{name}"  # `Path.rename` and `Path.replace` take one argument; `str.replace` takes two
    if name == "commit" and not owner.endswith("store"):
        return f"{owner}.commit"  # `store.commit` is the port; the adapter behind it has the crash point
    if name == "execute" and call.args and isinstance(call.args[0], ast.Constant) and str(call.args[0].value).upper() == "COMMIT":
        return "COMMIT"
    return ""


def test_every_act_is_a_crash_point() -> None:
    found = [
        (f"{name_of(path)} {what}", line)
        for path in _watched()
        for line, what in acts(tree(path))
        if name_of(path).startswith("serving/") or tuple(what.split(".")) not in SPAWNS
    ]
    bare = [f"{act} in line {line}" for act, line in found if act not in OUTSIDE]
    assert bare == [], "wrap it in `with crash_point.reach(POINT):`, or give a reason in OUTSIDE"
    assert set(OUTSIDE) == {act for act, _ in found}, "drop the reasons that are no longer needed"


def test_every_point_is_used_and_every_use_is_a_point() -> None:
    used = {
        text
        for path in modules()
        if name_of(path) != "app/system/crash_point.py"
        for text in re.findall(r'"([a-z]+\.[a-z]+)"', path.read_text(encoding="utf-8"))
        if text in KNOWN
    }
    assert used == KNOWN, "a point that nothing reaches proves nothing"


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("os.rename(a, b)", "os.rename"),
        ("path.replace(target)", "path.replace"),
        ("os.kill(1, 9)", "os.kill"),
        ("subprocess.Popen(command)", "subprocess.Popen"),
        ("self._connection.commit()", "self._connection.commit"),
        ("connection.execute('COMMIT')", "COMMIT"),
        ("with other(): os.replace(a, b)", "os.replace"),
        ("with crash_point.reach('engine.rename'): pass\nos.rename(a, b)", "os.rename"),
    ],
)
def test_a_bare_act_is_seen(code: str, what: str) -> None:
    assert [name for _, name in acts(ast.parse(code))] == [what]


@pytest.mark.parametrize(
    "code",
    [
        "with crash_point.reach('engine.rename'):\n    os.rename(a, b)",
        "with crash_point.reach(point), lock:\n    if a:\n        connection.commit()",
        "'a'.replace('b', 'c')",
        "dataclasses.replace(job, phase=1)",
        "self.store.commit(changes)",
    ],
)
def test_what_is_covered_or_harmless_is_not(code: str) -> None:
    assert list(acts(ast.parse(code))) == []


def _watched() -> list[Path]:
    found = modules("app", "engines", "stores", "registry", "serving")
    return [path for path in found if not name_of(path).startswith(OTHER_PROCESSES)]
