"""`fairway events`: the recorded events."""

from __future__ import annotations

from fairway.cli.address import DATA, JOB, MODEL, SERVICE, path_of
from fairway.cli.argument_parser import FORMAT, CliCommand, CommandFlag, CommandOptions, PositionalArgument
from fairway.cli.session import CommandSession


def events(options: CommandOptions) -> int:
    """Print the events of one object, or of all, oldest first."""
    path = path_of(options.word(), "/events", (JOB, SERVICE, MODEL, DATA)) if options.word() else "/v1/events"
    CommandSession(options).show(path, {"limit": options.number("limit")})
    return 0


COMMANDS = {
    "": CliCommand(
        "events",
        "Show the events of a run and its tasks, a service, a model or a dataset, oldest first.",
        events,
        words=(
            PositionalArgument(
                "NAME", "a run, a series for its newest run, service/, model/ or data/NAME; all events if omitted", optional=True
            ),
        ),
        flags=(CommandFlag("--limit", "show only the newest N events", "N", number=True), FORMAT),
    )
}
