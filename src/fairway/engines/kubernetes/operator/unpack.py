"""`python -m fairway.engines.kubernetes.operator.unpack`: the init container that fills a pod before its task starts.

It brings `fairway.runtime`; code from a ConfigMap, from the operator or from git; models and datasets; the newest checkpoint of
the run, where its pods share no volume. An error is the last line that it prints: the run's `why` shows it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import stat
import sys
import tarfile
from pathlib import Path

from fairway import version
from fairway.engines.kubernetes.operator.initializer.git_checkout import clone
from fairway.errors import FairwayError
from fairway.runtime import task_contract
from fairway.runtime.pod import fetch, operator_tls, upload
from fairway.runtime.pod.archive import BadArchiveError

_TOP = ("__init__.py", "version.py")
CODE = "/v1/given/code"
HOOK = "sitecustomize.py"
"""Python imports this module by itself from a folder on PYTHONPATH."""
AUTHORITY_FILE = "operator-ca.pem"
"""Written next to `fairway` in the folder of the runtime."""


def bring_runtime(target: Path) -> None:
    """Copy the runtime of a task, so that its image needs nothing of ours."""
    source = Path(version.__file__).parent
    package = target / "fairway"
    package.mkdir(parents=True, exist_ok=True)
    for name in _TOP:
        shutil.copyfile(source / name, package / name)
    shutil.copytree(source / "runtime", package / "runtime", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(package / "runtime" / "startup" / HOOK, target / HOOK)


def bring_code(bundle: Path, target: Path) -> int:
    """Unpack an archive of code and return the number of files; no path may leave the folder."""
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(bundle, "r:gz") as archive:
        members = archive.getmembers()
        archive.extractall(target, members, filter="data")
    return len(members)


def bring(given: argparse.Namespace) -> list[str]:
    """Bring everything that the arguments name. Returns messages about what was done."""
    bring_runtime(given.inject)
    authority = os.environ.get(operator_tls.AUTHORITY, "")
    if authority:
        # For programs of the task that need a file: MLflow's client.
        (given.inject / AUTHORITY_FILE).write_text(authority)
    done = []
    if given.bundle is not None:
        done.append(f"{bring_code(given.bundle, given.code)} files of code")
    if given.digest:
        count = fetch.fetch(_operator() + CODE, fetch.token(), str(given.code), given.digest)
        done.append(f"{count} files of code")
    if given.git:
        done.append(f"code at commit {clone(given.git, given.ref, given.code)}")
    for item in given.fetch:
        path, _, into = item.partition("=")
        done.append(f"{fetch.fetch(_operator() + path, fetch.token(), into)} files of {path.rpartition('/')[2]}")
    if given.checkpoints is not None and os.environ.get(task_contract.ENDPOINT):
        step = upload.restore(_operator(), fetch.token(), str(given.checkpoints))
        done.append(f"checkpoint {step}" if step else "no checkpoint yet")
    for folder in (given.code, given.checkpoints):
        if folder is not None and folder.is_dir():
            open_to_task(folder)
    return done


def open_to_task(folder: Path) -> None:
    """Let the task write there: it runs as the user of its own image, and root without capabilities is a user like others.

    The folder is on a volume of this pod alone.
    """
    for parent, _, names in os.walk(folder):
        for path in (parent, *(os.path.join(parent, name) for name in names)):
            with contextlib.suppress(OSError):  # The volume itself may be owned by another user: it is writable already.
                mode = os.lstat(path).st_mode
                if not stat.S_ISLNK(mode):
                    runs = 0o111 if mode & 0o100 else 0
                    os.chmod(path, stat.S_IMODE(mode) | 0o666 | runs)


def _operator() -> str:
    endpoint = os.environ.get(task_contract.ENDPOINT, "")
    if not endpoint:
        message = "the operator's endpoint is not configured"
        raise FairwayError(message, fix="set FAIRWAY_OPERATOR_ENDPOINT in its Deployment: `fairway install kubernetes` does")
    return endpoint


def main(arguments: list[str] | None = None) -> int:
    """Run the program and print what was done."""
    parser = argparse.ArgumentParser(prog="fairway-unpack", description=__doc__)
    parser.add_argument("--inject", type=Path, required=True)
    parser.add_argument("--code", type=Path, required=True)
    parser.add_argument("--bundle", type=Path, help="code as an archive in a ConfigMap")
    parser.add_argument("--digest", default="", help="code in the operator's blobs")
    parser.add_argument("--git", default="", help="code in a repository")
    parser.add_argument("--ref", default="HEAD")
    parser.add_argument("--fetch", action="append", default=[], metavar="PATH=FOLDER", help="another download from the operator")
    parser.add_argument("--checkpoints", type=Path, help="the folder for the newest checkpoint of the run")
    options = parser.parse_args(arguments)
    try:
        done = bring(options)
    except (OSError, tarfile.TarError, BadArchiveError, fetch.RequestRejectedError, FairwayError) as error:
        # A single line, because only the last line of the output is shown.
        sys.stderr.write(f"{'; '.join(str(error).split(chr(10)))}\n")
        return 1
    sys.stdout.write(f"fairway: {', '.join(done) or 'no code'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
