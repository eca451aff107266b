"""`python -m fairway.engines.kubernetes.operator.unpack`: the step that brings code and `fairway.runtime` into a pod."""

from __future__ import annotations

import argparse
import shutil
import sys
import tarfile
from pathlib import Path

from fairway import version

_TOP = ("__init__.py", "version.py")


def bring_runtime(target: Path) -> None:
    """Copy what goes into a task, so that its image needs nothing of ours."""
    source = Path(version.__file__).parent
    package = target / "fairway"
    package.mkdir(parents=True, exist_ok=True)
    for name in _TOP:
        shutil.copyfile(source / name, package / name)
    shutil.copytree(source / "runtime", package / "runtime", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


def bring_code(bundle: Path, target: Path) -> int:
    """Unpack an archive of code; nothing of it may leave the folder. How many files there were."""
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(bundle, "r:gz") as archive:
        members = archive.getmembers()
        archive.extractall(target, members, filter="data")
    return len(members)


def main(arguments: list[str] | None = None) -> int:
    """Do it, and say what was done."""
    parser = argparse.ArgumentParser(prog="fairway-unpack", description=__doc__)
    parser.add_argument("--inject", type=Path, required=True)
    parser.add_argument("--code", type=Path, required=True)
    parser.add_argument("--bundle", type=Path)
    given = parser.parse_args(arguments)
    try:
        bring_runtime(given.inject)
        count = bring_code(given.bundle, given.code) if given.bundle is not None else 0
    except (OSError, tarfile.TarError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    sys.stdout.write(f"fairway: {count} files of code\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
