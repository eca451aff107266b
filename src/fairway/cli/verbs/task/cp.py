"""`fairway cp`: copy files from and to the folders of a run, and no others."""

from __future__ import annotations

import os

from fairway.cli.address import job_path
from fairway.cli.argument_parser import PLAN, CliCommand, CommandOptions, PositionalArgument
from fairway.cli.session import CommandSession, say, show_line
from fairway.errors import NotFoundError, RefusedError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fairway.engines.kubernetes.client.api import ApiClient

FOLDERS = ("checkpoints", "outputs", "code", "tensorboard", "shared")
"""The folders of a run that may be copied."""


def copy(options: CommandOptions) -> int:
    """Copy a file or a folder from or to a run."""
    source, target = options.words
    session = CommandSession(options)
    source_address = _address(source)
    target_address = _address(target)
    if bool(source_address) == bool(target_address):
        message = f"exactly one of {source} and {target} must have the form NAME:PATH"
        raise UsageError(message, fix="fairway cp mnist:outputs/model model")
    if session.cluster is not None:
        return _with_pod(session, options, source_address, target_address)
    if source_address:
        source_path, target_path = _inside(session, *source_address), _free_target(target, source_address[1])
        required_path = source_path
    else:
        source_path, target_path = source, _inside(session, *target_address)
        if os.path.isdir(target_path):
            target_path = os.path.join(target_path, os.path.basename(os.path.abspath(source)))
        required_path = source
    if not os.path.exists(required_path):
        message = f"there is no {source}"
        raise NotFoundError(message, fix=_what_there_is(required_path))
    if options.on("plan"):
        show_line(f"{source_path} would be copied to {target_path}")
        return 0
    session.announce()
    _copy(source_path, target_path)
    say(f"copied {source} to {target_path if source_address else target}")
    return 0


def _with_pod(
    session: CommandSession, options: CommandOptions, out: tuple[str, str] | tuple[()], into: tuple[str, str] | tuple[()]
) -> int:
    """Copy from or to the pod of the first running task."""
    from fairway.cli.cluster.pod import copy_in, copy_out, enter, find

    source, target = options.words
    name, path = out or into or ("", "")
    folder = _first_part(name, path)
    root = f"/fairway/{'code' if folder == 'code' else f'run/{folder}'}"
    pod_path = f"{root}/{path.strip('/').partition('/')[2]}"
    target_path = _free_target(target, path) if out else target
    if out and os.path.exists(target_path):
        message = f"{target_path} already exists"
        raise RefusedError(message, fix="remove it first, or choose another target")
    if into and not os.path.exists(source):
        message = f"there is no {source}"
        raise NotFoundError(message, fix=_what_there_is(source))

    async def act(client: ApiClient) -> None:
        pod = await find(client, session, name)
        if options.on("plan"):
            show_line(f"{source} would be copied to {target_path} (pod {pod.pod})")
            return
        session.announce()
        if out:
            await copy_out(client, pod, root, pod_path, target_path)
        else:
            await copy_in(client, pod, root, pod_path, source)
        say(f"copied {source} to {target_path}")

    enter(session, act)
    return 0


def _address(text: str) -> tuple[str, str] | tuple[()]:
    """Split `mnist-7:outputs/model` into (mnist-7, outputs/model); return an empty tuple for a local path."""
    name, mark, path = text.partition(":")
    return (name, path) if mark and name and not name.startswith((".", "/")) else ()


def _inside(session: CommandSession, name: str, path: str) -> str:
    """Return the path in the run's folder. Links are resolved before the check, so that no path outside can be named."""
    folder = session.fetch(job_path(name)).get("folder") or ""
    if not folder:
        message = f"{name} has no folder on this machine"
        raise RefusedError(message, fix="run `fairway cp` on the machine on which the run runs")
    first_part = _first_part(name, path)
    root = os.path.realpath(os.path.join(folder, first_part))
    resolved = os.path.realpath(os.path.join(folder, path.lstrip("/")))
    if resolved != root and not resolved.startswith(root + os.sep):
        message = f"{name}:{path} leads outside the run's {first_part} folder"
        raise RefusedError(message, fix="use a path inside it")
    return resolved


def _first_part(name: str, path: str) -> str:
    folder = path.strip("/").partition("/")[0]
    if folder not in FOLDERS:
        message = f"{name}:{path}: the path must begin with one of {', '.join(FOLDERS)}"
        raise UsageError(message, fix=f"fairway cp {name}:outputs .")
    return folder


def _free_target(target: str, path: str) -> str:
    return os.path.join(target, os.path.basename(path.rstrip("/"))) if os.path.isdir(target) else target


def _what_there_is(path: str) -> str:
    folder = os.path.dirname(path)
    try:
        names = sorted(os.listdir(folder or "."))[:10]
    except OSError:
        return "`fairway get NAME` shows the run's folder"
    return f"that folder contains: {', '.join(names)}" if names else "that folder is empty"


def _copy(source: str, target: str) -> None:
    import shutil

    if os.path.exists(target):
        message = f"{target} already exists"
        raise RefusedError(message, fix="remove it first, or choose another target")
    if os.path.isdir(source):
        # Links are copied as links: their targets may lie outside.
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target)


COMMANDS = {
    "": CliCommand(
        "cp",
        f"Copy files from or to a run: NAME:PATH, where PATH begins with {', '.join(FOLDERS[:-1])} or {FOLDERS[-1]}.",
        copy,
        words=(PositionalArgument("FROM", "NAME:PATH or a local path"), PositionalArgument("TO", "a local path or NAME:PATH")),
        flags=(PLAN,),
        examples=("fairway cp mnist:outputs/model ./model", "fairway cp weights.pt mnist-7:checkpoints/"),
    )
}
