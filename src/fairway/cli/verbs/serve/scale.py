"""`fairway scale`: the minimum number of replicas of a service."""

from __future__ import annotations

from fairway.cli.address import service_path
from fairway.cli.argument_parser import PLAN, CliCommand, CommandOptions, PositionalArgument
from fairway.cli.session import CommandSession, say, write
from fairway.errors import UsageError


def scale(options: CommandOptions) -> int:
    """Set the number of replicas below which the autoscaler does not go."""
    address, number = options.words
    if not number.isdecimal():
        message = f"{number}: expected a whole number of replicas"
        raise UsageError(message, fix="fairway scale service/mnist 3; 0 removes the floor")
    session = CommandSession(options)
    body = {"floor": int(number), "plan": options.on("plan")}
    if not options.on("plan"):
        session.announce()
    write(session.change("POST", service_path(address, "/scale"), body, session.look()))
    if options.on("plan"):
        say("nothing was changed (--plan)")
    return 0


COMMANDS = {
    "": CliCommand(
        "scale",
        "Set the minimum number of replicas of a service. The autoscaler goes above it if the load requires more.",
        scale,
        words=(
            PositionalArgument("NAME", "a service: mnist or service/mnist"),
            PositionalArgument("N", "minimum number of replicas; 0 removes the floor"),
        ),
        flags=(PLAN,),
        examples=("fairway scale service/mnist 3", "fairway scale mnist 0"),
    )
}
