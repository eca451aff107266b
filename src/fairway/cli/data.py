"""`fairway data`: versioned datasets that documents name as inputs."""

from __future__ import annotations

import os

from fairway.cli.address import DATA, path_of, split
from fairway.cli.grammar import FORMAT, PLAN, Command, Flag, Options, Word
from fairway.cli.model import say_large
from fairway.cli.session import Session, say, show_line
from fairway.sdk.wire import quote


def add(options: Options) -> int:
    """Keep a folder or a file as the next version of a dataset."""
    session = Session(options)
    name, path = options.words
    by_reference = options.on("reference")
    path = path if by_reference and "://" in path else os.path.abspath(path)
    if options.on("plan"):
        how = "described, not copied, as" if by_reference else "kept as"
        say(f"{path} would be {how} the next version of {name}; nothing was changed (--plan)")
        return 0
    session.announce()
    say_large(path)
    made = session.send("POST", "/v1/datasets", {"name": name, "path": path, "reference": by_reference})
    reference = f"{made['name']}@{made['version']}"
    show_line(reference)
    kept = "are described where they lie" if by_reference else "are kept"
    say(f"{made['files']:,} files {kept}; use them: data: {{train: {reference}}}, or --data train={reference}")
    return 0


def list_datasets(options: Options) -> int:
    """Print every version of every dataset."""
    Session(options).show("/v1/datasets")
    return 0


def get(options: Options) -> int:
    """Print each version named, with its files."""
    session = Session(options)
    for reference in options.words:
        session.show(_path(reference))
    return 0


def diff(options: Options) -> int:
    """Print which files of two versions differ."""
    before, after = options.words
    Session(options).show(f"{_path(before)}/diff/{quote(split(after, (DATA,))[1])}")
    return 0


def _path(reference: str) -> str:
    return path_of(reference, kinds=(DATA,))


COMMANDS = {
    "add": Command(
        "data add",
        "Keep a folder or a file as the next version of a dataset. Content that is there already is not kept twice.",
        add,
        words=(Word("NAME", "the dataset"), Word("PATH", "a folder or a file; with --reference also a URI")),
        flags=(Flag("--reference", "do not copy: describe what lies there, and read it from there"), PLAN),
        examples=("fairway data add mnist ./mnist", "fairway run --data train=mnist@1 -- python train.py --data {{data.train}}"),
    ),
    "list": Command("data list", "List datasets and their versions.", list_datasets, flags=(FORMAT,)),
    "get": Command(
        "data get",
        "Show a version of a dataset with its files.",
        get,
        words=(Word("NAME@VERSION", "a version (mnist@3), or the newest (mnist)", many=True),),
        flags=(FORMAT,),
        examples=("fairway data get mnist@3",),
    ),
    "diff": Command(
        "data diff",
        "Show which files were added, removed and changed between two versions.",
        diff,
        words=(Word("BEFORE", "a version"), Word("AFTER", "another")),
        flags=(FORMAT,),
        examples=("fairway data diff mnist@1 mnist",),
    ),
}
