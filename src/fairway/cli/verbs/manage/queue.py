"""`fairway queue`: the queues, their quotas and their use."""

from __future__ import annotations

from fairway.cli.address import queue_path
from fairway.cli.argument_parser import FORMAT, CliCommand, CommandOptions, PositionalArgument
from fairway.cli.session import CommandSession


def list_queues(options: CommandOptions) -> int:
    """Print every queue."""
    CommandSession(options).show("/v1/queues")
    return 0


def get(options: CommandOptions) -> int:
    """Print all details of each named queue."""
    session = CommandSession(options)
    for address in options.words:
        session.show(queue_path(address))
    return 0


COMMANDS = {
    "list": CliCommand(
        "queue list",
        "List queues with their weight, runs, share of the machines, and use of their quota.",
        list_queues,
        flags=(FORMAT,),
        examples=("fairway queue list", "fairway queue list -o wide"),
    ),
    "get": CliCommand(
        "queue get",
        "Show a queue: members, quota and use, limits and defaults.",
        get,
        words=(PositionalArgument("NAME", "a queue", many=True),),
        flags=(FORMAT,),
        examples=("fairway queue get research", "fairway apply -f queue.yaml   # creates or changes a queue"),
    ),
}
