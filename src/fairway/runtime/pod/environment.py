"""`python -m fairway.runtime.pod.environment`: make a virtual environment from requirements before the task starts.

It runs in the task's own image with the task's own interpreter, and adds to the packages of that interpreter: packages in the
image need not be listed again. An environment is stored under the digest of its inputs, so that a cache that outlives the pod can
reuse it for the next one. uv is used if the image has it, else pip. Standard library only, Python 3.9 and newer.
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
"""Name of the link to the environment, in the folder that the task sees."""
_INCLUDE = re.compile(r"^\s*(?:-r|--requirement|-c|--constraint)[\s=]+(?P<path>\S+)", re.MULTILINE)
LOCAL = re.compile(r"^\s*(?:-e\b|--editable\b|\.|/|~|file:|\S+\s*@\s*file:)", re.MULTILINE)
_MOST = 50
_SMALL = 1 << 20


class EnvironmentBuildError(Exception):
    """Raised when the environment cannot be made, with the problem and the fix."""


def provide(requirements: str, cache: str, salt: str = "") -> str:
    """Return the folder of an environment with these requirements; it is made if the cache has none.

    `salt` identifies the code, in case the requirements refer to local folders.
    """
    try:
        text = with_includes(requirements)
    except OSError as error:
        message = f"environment.requirements: {error.filename} cannot be read ({error.strerror})"
        raise EnvironmentBuildError(f"{message}; fix: name a file relative to the code's folder") from None
    inputs = [text, sys.version, sysconfig.get_platform(), sys.executable, *_packages(), salt if LOCAL.search(text) else ""]
    target = os.path.join(cache, hashlib.sha256("\0".join(inputs).encode("utf-8", "replace")).hexdigest()[:24])
    if not os.path.isdir(target):
        os.makedirs(cache, exist_ok=True)
        _build(requirements, target)
    return target


def _build(requirements: str, target: str) -> None:
    """Build the environment under a temporary name, then rename it: concurrent builds of the same environment only lose time."""
    temporary = f"{target}.{secrets.token_hex(4)}"
    try:
        _run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", temporary], "venv", requirements)
        _see_packages_of_image(temporary)
        name, install = _installer(os.path.join(temporary, "bin", "python"))
        _say(f"creating an environment from {os.path.basename(requirements)} with {name}")
        _run([*install, "--requirement", requirements], name, requirements)
        move_in(temporary, target)
        try:
            os.rename(temporary, target)
        except OSError:
            if not os.path.isdir(target):
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _packages() -> list[str]:
    """Return the package folders of the interpreter."""
    return [path for path in [*site.getsitepackages(), sysconfig.get_path("purelib")] if os.path.isdir(path)]


def _see_packages_of_image(environment: str) -> None:
    site_packages = subprocess.run(
        [os.path.join(environment, "bin", "python"), "-I", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.strip()
    with open(os.path.join(site_packages, "image.pth"), "w", encoding="utf-8") as file:
        file.write("".join(path + "\n" for path in dict.fromkeys(_packages())))


def _installer(python: str) -> tuple[str, list[str]]:
    uv = shutil.which("uv")
    if uv:
        return "uv", [uv, "pip", "install", "--python", python]
    for name in (sys.executable, shutil.which("python3") or "", shutil.which("python") or ""):
        if name and subprocess.run([name, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0:
            arguments = ["install", "--disable-pip-version-check", "--no-input", "--no-warn-script-location"]
            return "pip", [name, "-m", "pip", "--python", python, *arguments]
    message = "environment.requirements needs uv or pip (22.3 or newer) in the image, but it has neither"
    raise EnvironmentBuildError(f"{message}; fix: choose an image that has one, or one that has these packages already")


def _run(argv: list[str], name: str, requirements: str) -> None:
    completed = subprocess.run(
        argv, cwd=os.path.dirname(requirements), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if completed.returncode == 0:
        return
    sys.stderr.write(completed.stdout)
    lines = [line.strip() for line in completed.stdout.splitlines() if line.strip()]
    output = " / ".join(lines[-4:])[-800:]
    problem = f"no environment could be created from {os.path.basename(requirements)}"
    fix = "correct the file, or choose an image that has the packages"
    raise EnvironmentBuildError(f"{problem}: {name} ended with exit code {completed.returncode}: {output}; fix: {fix}")


def move_in(aside: str, target: str) -> None:
    """Replace the build path in the scripts by the final path of the environment."""
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
    """Return the text of a requirements file and of all files that it includes.

    A change in any of them makes another environment. Raises `OSError`, with its name, for a file that cannot be read.
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
        included = (match["path"] for match in _INCLUDE.finditer(texts[-1]))
        waiting += [os.path.join(os.path.dirname(path), name) for name in included if "://" not in name]
    return "\n".join(texts)


def activated(environment: dict[str, str], folder: str) -> dict[str, str]:
    """Return the variables of a process that uses the environment to which the link in the folder points."""
    prefix = os.path.realpath(os.path.join(folder, CURRENT))
    search_path = environment.get("PATH", os.defpath)
    return {**environment, "VIRTUAL_ENV": prefix, "PATH": os.path.join(prefix, "bin") + os.pathsep + search_path}


def main(arguments: list[str] | None = None) -> int:
    """Make the environment, and link to it."""
    parser = argparse.ArgumentParser(prog="fairway-environment", description="Create a virtual environment from requirements.")
    parser.add_argument("--requirements", required=True)
    parser.add_argument("--cache", required=True)
    parser.add_argument("--link", required=True, help="the folder for the link to the environment")
    parser.add_argument("--salt", default="")
    options = parser.parse_args(arguments)
    try:
        prefix = provide(options.requirements, options.cache, options.salt)
        temporary = os.path.join(options.link, f".{secrets.token_hex(4)}")
        os.symlink(prefix, temporary)
        os.replace(temporary, os.path.join(options.link, CURRENT))
    except (EnvironmentBuildError, OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    _say(f"the environment is {prefix}")
    return 0


def _say(words: str) -> None:
    sys.stdout.write(f"fairway: {words}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
