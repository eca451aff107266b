"""`fairway why`: the reason for the state of a run or service, and what would help."""

from __future__ import annotations

from fairway.cli.address import path_of
from fairway.cli.argument_parser import FORMAT, CliCommand, CommandOptions, PositionalArgument
from fairway.cli.session import CommandSession


def why(options: CommandOptions) -> int:
    """Print the reason for the state of a run, or for the number of replicas of a service."""
    CommandSession(options).show(path_of(options.word(), "/why"))
    return 0


COMMANDS = {
    "": CliCommand(
        "why",
        "Explain why a run waits, restarts or failed, and what would help; for a service, which rule set its number of replicas.",
        why,
        words=(PositionalArgument("NAME", "a run, a series for its newest run, or service/NAME"),),
        flags=(FORMAT,),
    )
}
