"""`python -m fairway.runtime.pod.environment`: make a virtual environment from requirements before the task starts.

Standard library only, Python 3.9 and newer. It runs in the task's own image with the task's own interpreter, and adds to what
that interpreter has: what the image brings need not be named again. An environment is kept under the digest of what it was made
from, so that a cache that outlives the pod has it for the next one. uv is used where the image has it, else pip.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import secrets
import shutil
import site
import subprocess
import sys
import sysconfig

CURRENT = "current"
"""The link that names the environment, in the folder that the task sees."""
_INCLUDE = re.compile(r"^\s*(?:-r|--requirement|-c|--constraint)[\s=]+(?P<path>\S+)", re.MULTILINE)
LOCAL = re.compile(r"^\s*(?:-e\b|--editable\b|\.|/|~|file:|\S+\s*@\s*file:)", re.MULTILINE)
_MOST = 50
_SMALL = 1 << 20


class CannotError(Exception):
    """The environment cannot be made: what is wrong, and the fix."""


def provide(requirements: str, cache: str, salt: str = "") -> str:
    """The folder of an environment with these requirements, made when the cache has none.

    `salt` tells code apart when the requirements name local folders.
    """
    try:
        text = with_includes(requirements)
    except OSError as error:
        message = f"environment.requirements: {error.filename} cannot be read ({error.strerror})"
        raise CannotError(f"{message}; fix: name a file relative to the code's folder") from None
    about = [text, sys.version, sysconfig.get_platform(), sys.executable, *_packages(), salt if LOCAL.search(text) else ""]
    target = os.path.join(cache, hashlib.sha256("\0".join(about).encode("utf-8", "replace")).hexdigest()[:24])
    if not os.path.isdir(target):
        os.makedirs(cache, exist_ok=True)
        _build(requirements, target)
    return target


def _build(requirements: str, target: str) -> None:
    """Aside, then renamed: whoever else builds the same at the same time loses nothing but time."""
    aside = f"{target}.{secrets.token_hex(4)}"
    try:
        _run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", aside], "venv", requirements)
        _see_packages_of_image(aside)
        name, install = _installer(os.path.join(aside, "bin", "python"))
        _say(f"making an environment from {os.path.basename(requirements)} with {name}")
        _run([*install, "--requirement", requirements], name, requirements)
        move_in(aside, target)
        try:
            os.rename(aside, target)
        except OSError:
            if not os.path.isdir(target):
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _packages() -> list[str]:
    """Where the interpreter has packages."""
    return [path for path in [*site.getsitepackages(), sysconfig.get_path("purelib")] if os.path.isdir(path)]


def _see_packages_of_image(environment: str) -> None:
    inner = subprocess.run(
        [os.path.join(environment, "bin", "python"), "-I", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.strip()
    with open(os.path.join(inner, "image.pth"), "w", encoding="utf-8") as file:
        file.write("".join(path + "\n" for path in dict.fromkeys(_packages())))


def _installer(python: str) -> tuple[str, list[str]]:
    uv = shutil.which("uv")
    if uv:
        return "uv", [uv, "pip", "install", "--python", python]
    for name in (sys.executable, shutil.which("python3") or "", shutil.which("python") or ""):
        if name and subprocess.run([name, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0:
            words = ["install", "--disable-pip-version-check", "--no-input", "--no-warn-script-location"]
            return "pip", [name, "-m", "pip", "--python", python, *words]
    message = "environment.requirements needs uv or pip (22.3 or newer) in the image, and it has neither"
    raise CannotError(f"{message}; fix: choose an image that has one, or one that has these packages already")


def _run(argv: list[str], name: str, requirements: str) -> None:
    done = subprocess.run(
        argv, cwd=os.path.dirname(requirements), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode == 0:
        return
    sys.stderr.write(done.stdout)
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    said = " / ".join(lines[-4:])[-800:]
    what = f"no environment could be made from {os.path.basename(requirements)}"
    fix = "correct the file, or choose an image that has the packages"
    raise CannotError(f"{what}: {name} ended with exit code {done.returncode}: {said}; fix: {fix}")


def move_in(aside: str, target: str) -> None:
    """Let the scripts say where the environment will be, not where it was built."""
    old, new = os.fsencode(aside), os.fsencode(target)
    folder = os.path.join(aside, "bin")
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.islink(path) or not os.path.isfile(path) or os.path.getsize(path) > _SMALL:
            continue
        with open(path, "rb") as file:
            content = file.read()
        if old in content and b"\0" not in content:
            with open(path, "wb") as file:
                file.write(content.replace(old, new))


def with_includes(requirements: str) -> str:
    """The text of a requirements file and of all that it includes: a change in any makes another environment.

    Raises `OSError`, with its name, for one that cannot be read.
    """
    texts: list[str] = []
    seen: set[str] = set()
    waiting = [requirements]
    while waiting and len(seen) < _MOST:
        path = waiting.pop(0)
        if path in seen:
            continue
        seen.add(path)
        with open(path, encoding="utf-8", errors="replace") as file:
            texts.append(file.read())
        found = (match["path"] for match in _INCLUDE.finditer(texts[-1]))
        waiting += [os.path.join(os.path.dirname(path), name) for name in found if "://" not in name]
    return "\n".join(texts)


def activated(environment: dict[str, str], folder: str) -> dict[str, str]:
    """The variables of a process that works in the environment that the link in the folder names."""
    place = os.path.realpath(os.path.join(folder, CURRENT))
    before = environment.get("PATH", os.defpath)
    return {**environment, "VIRTUAL_ENV": place, "PATH": os.path.join(place, "bin") + os.pathsep + before}


def main(arguments: list[str] | None = None) -> int:
    """Make it, and link to it."""
    parser = argparse.ArgumentParser(prog="fairway-environment", description="Make a virtual environment from requirements.")
    parser.add_argument("--requirements", required=True)
    parser.add_argument("--cache", required=True)
    parser.add_argument("--link", required=True, help="the folder for the link to it")
    parser.add_argument("--salt", default="")
    given = parser.parse_args(arguments)
    try:
        found = provide(given.requirements, given.cache, given.salt)
        aside = os.path.join(given.link, f".{secrets.token_hex(4)}")
        os.symlink(found, aside)
        os.replace(aside, os.path.join(given.link, CURRENT))
    except (CannotError, OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    _say(f"the environment is {found}")
    return 0


def _say(words: str) -> None:
    sys.stdout.write(f"fairway: {words}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
