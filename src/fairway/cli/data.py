"""`fairway data`: versioned datasets that documents name as inputs."""

from __future__ import annotations

import os

from fairway.cli.grammar import FORMAT, PLAN, Command, Options, Word
from fairway.cli.session import Session, say, show_line


def add(options: Options) -> int:
    """Keep a folder or a file as the next version of a dataset."""
    session = Session(options)
    name, path = options.words
    path = os.path.abspath(path)
    if options.on("plan"):
        say(f"{path} would be kept as the next version of {name}; nothing was changed (--plan)")
        return 0
    session.announce()
    made = session.send("POST", "/v1/datasets", {"name": name, "path": path})
    reference = f"{made['name']}@{made['version']}"
    show_line(reference)
    say(f"{made['files']:,} files are kept; use them: data: {{train: {reference}}}, or --data train={reference}")
    return 0


def list_datasets(options: Options) -> int:
    """Print every version of every dataset."""
    Session(options).show("/v1/datasets")
    return 0


COMMANDS = {
    "add": Command(
        "data add",
        "Keep a folder or a file as the next version of a dataset. Content that is there already is not kept twice.",
        add,
        words=(Word("NAME", "the dataset"), Word("PATH", "a folder or a file")),
        flags=(PLAN,),
        examples=("fairway data add mnist ./mnist", "fairway run --data train=mnist@1 -- python train.py --data {{data.train}}"),
    ),
    "list": Command("data list", "List datasets and their versions.", list_datasets, flags=(FORMAT,)),
}
