"""Explains why a program could not be started. Standard library only; imported only when that has happened."""

from __future__ import annotations

import difflib
import errno
import os

_LIMIT = 20_000
"""Limit of names considered for a suggestion."""


def explain(stage: str, number: int, argv: list[str], env: dict[str, str], cwd: str) -> str:
    """Return one sentence: what was requested, what is wrong, and what to do."""
    program = argv[0] if argv else ""
    if stage == "folder":
        return f"cannot enter the working folder {cwd!r}: {os.strerror(number).lower()}"
    if stage == "start":
        return f"cannot set up a process for {program!r}: {os.strerror(number).lower()}"
    if number == errno.ENOENT:
        return _missing(program, env, cwd)
    if number == errno.EACCES:
        return f"{program!r} is not executable; make it so with chmod +x, or name its interpreter: python {program}"
    if number == errno.ENOEXEC:
        return f"{program!r} is no program and has no #! line; name its interpreter, for example: bash {program}"
    if number == errno.EINVAL:
        return f"the arguments or variables of {program!r} contain a zero byte, which cannot be passed to a program"
    if number == errno.E2BIG:
        return f"the arguments and variables of {program!r} are longer than the system allows; pass them in a file"
    return f"cannot start {program!r}: {os.strerror(number).lower()}"


def _missing(program: str, env: dict[str, str], cwd: str) -> str:
    path = os.path.join(cwd, program)
    if "/" in program and os.path.exists(path):
        return f"{program!r} exists but its interpreter (the #! line) does not; name another one: python {program}"
    if "/" in program:
        folder, name = os.path.split(path)
        near = difflib.get_close_matches(name, _names([folder], files=True), 1, 0.6)
        hint = f"; did you mean {os.path.join(os.path.dirname(program), near[0])!r}?" if near else ""
        return f"there is no file {program!r} in {cwd!r}{hint}"
    near = difflib.get_close_matches(program, _names(env.get("PATH", os.defpath).split(os.pathsep)), 1, 0.6)
    here = os.path.isfile(path)
    if here:
        return f"there is no program {program!r} on PATH; the file lies in the working folder: write ./{program}"
    return f"there is no program {program!r} on PATH" + (f"; did you mean {near[0]!r}?" if near else "")


def _names(folders: list[str], *, files: bool = False) -> list[str]:
    """Return the programs in these folders, nearest first; with `files`, all files."""
    names: dict[str, None] = {}
    for folder in folders:
        try:
            entries = sorted(os.listdir(folder or os.curdir))
        except OSError:
            continue
        for name in entries:
            if files or os.access(os.path.join(folder, name), os.X_OK):
                names[name] = None
            if len(names) >= _LIMIT:
                return list(names)
    return list(names)
