"""`fairway queue`: the queues, their quotas and their use."""

from __future__ import annotations

from fairway.cli.address import queue_path
from fairway.cli.grammar import FORMAT, Command, Options, Word
from fairway.cli.session import Session


def list_queues(options: Options) -> int:
    """Print every queue."""
    Session(options).show("/v1/queues")
    return 0


def get(options: Options) -> int:
    """Print all details of each named queue."""
    session = Session(options)
    for address in options.words:
        session.show(queue_path(address))
    return 0


COMMANDS = {
    "list": Command(
        "queue list",
        "List queues with their weight, runs, share of the machines, and use of their quota.",
        list_queues,
        flags=(FORMAT,),
        examples=("fairway queue list", "fairway queue list -o wide"),
    ),
    "get": Command(
        "queue get",
        "Show a queue: members, quota and use, limits and defaults.",
        get,
        words=(Word("NAME", "a queue", many=True),),
        flags=(FORMAT,),
        examples=("fairway queue get research", "fairway apply -f queue.yaml   # creates or changes a queue"),
    ),
}
