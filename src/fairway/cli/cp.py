"""`fairway cp`: files from and to a run's folders, and nowhere else in them."""

from __future__ import annotations

import os

from fairway.cli.address import job_path
from fairway.cli.grammar import PLAN, Command, Options, Word
from fairway.cli.session import Session, say, show_line
from fairway.errors import NotFoundError, RefusedError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fairway.engines.kubernetes.client.api import Client

FOLDERS = ("checkpoints", "outputs", "code", "tensorboard", "shared")
"""What of a run may be copied."""


def copy(options: Options) -> int:
    """Copy a file or a folder one way or the other."""
    source, target = options.words
    session = Session(options)
    out = _address(source)
    into = _address(target)
    if bool(out) == bool(into):
        message = f"one of {source} and {target} must be NAME:PATH, and only one"
        raise UsageError(message, fix="fairway cp mnist:outputs/model model")
    if session.cluster is not None:
        return _with_pod(session, options, out, into)
    if out:
        here, there = _inside(session, *out), _free_target(target, out[1])
        needed = here
    else:
        here, there = source, _inside(session, *into)
        if os.path.isdir(there):
            there = os.path.join(there, os.path.basename(os.path.abspath(source)))
        needed = source
    if not os.path.exists(needed):
        message = f"there is no {source}"
        raise NotFoundError(message, fix=_what_there_is(needed))
    if options.on("plan"):
        show_line(f"{here} would be copied to {there}")
        return 0
    session.announce()
    _copy(here, there)
    say(f"copied {source} to {there if out else target}")
    return 0


def _with_pod(session: Session, options: Options, out: tuple[str, str] | tuple[()], into: tuple[str, str] | tuple[()]) -> int:
    """The same from and to the pod of the first task that runs."""
    from fairway.cli.pods import copy_in, copy_out, enter, find

    source, target = options.words
    name, path = out or into or ("", "")
    first = _first_part(name, path)
    root = f"/fairway/{'code' if first == 'code' else f'run/{first}'}"
    inside = f"{root}/{path.strip('/').partition('/')[2]}"
    there = _free_target(target, path) if out else target
    if out and os.path.exists(there):
        message = f"{there} is there already"
        raise RefusedError(message, fix="remove it first, or name another place")
    if into and not os.path.exists(source):
        message = f"there is no {source}"
        raise NotFoundError(message, fix=_what_there_is(source))

    async def act(client: Client) -> None:
        place = await find(client, session, name)
        if options.on("plan"):
            show_line(f"{source} would be copied to {there} (pod {place.pod})")
            return
        session.announce()
        if out:
            await copy_out(client, place, root, inside, there)
        else:
            await copy_in(client, place, root, inside, source)
        say(f"copied {source} to {there}")

    enter(session, act)
    return 0


def _address(text: str) -> tuple[str, str] | tuple[()]:
    """`mnist-7:outputs/model` is (mnist-7, outputs/model); a path is nothing."""
    name, mark, path = text.partition(":")
    return (name, path) if mark and name and not name.startswith((".", "/")) else ()


def _inside(session: Session, name: str, path: str) -> str:
    """The path in the run's folder. Links are followed before it is checked: nothing outside can be named."""
    folder = session.fetch(job_path(name)).get("folder") or ""
    if not folder:
        message = f"{name} has no folder on this machine"
        raise RefusedError(message, fix="cp works where the run does")
    first = _first_part(name, path)
    root = os.path.realpath(os.path.join(folder, first))
    found = os.path.realpath(os.path.join(folder, path.lstrip("/")))
    if found != root and not found.startswith(root + os.sep):
        message = f"{name}:{path} leads out of the run's {first} folder"
        raise RefusedError(message, fix="name a path inside it")
    return found


def _first_part(name: str, path: str) -> str:
    first = path.strip("/").partition("/")[0]
    if first not in FOLDERS:
        message = f"{name}:{path}: the path must begin with one of {', '.join(FOLDERS)}"
        raise UsageError(message, fix=f"fairway cp {name}:outputs .")
    return first


def _free_target(target: str, path: str) -> str:
    return os.path.join(target, os.path.basename(path.rstrip("/"))) if os.path.isdir(target) else target


def _what_there_is(path: str) -> str:
    folder = os.path.dirname(path)
    try:
        names = sorted(os.listdir(folder or "."))[:10]
    except OSError:
        return "look at the run's folder: fairway get NAME"
    return f"in that folder: {', '.join(names)}" if names else "that folder is empty"


def _copy(source: str, target: str) -> None:
    import shutil

    if os.path.exists(target):
        message = f"{target} is there already"
        raise RefusedError(message, fix="remove it first, or name another place")
    if os.path.isdir(source):
        # Links stay links: what they point to may lie outside.
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target)


COMMANDS = {
    "": Command(
        "cp",
        f"Copy files from or to a run: NAME:PATH, where PATH begins with {', '.join(FOLDERS[:-1])} or {FOLDERS[-1]}.",
        copy,
        words=(Word("FROM", "NAME:PATH or a local path"), Word("TO", "a local path or NAME:PATH")),
        flags=(PLAN,),
        examples=("fairway cp mnist:outputs/model ./model", "fairway cp weights.pt mnist-7:checkpoints/"),
    )
}
