"""`fairway get`: show objects of any kind by their addresses."""

from __future__ import annotations

from fairway.cli.address import DATA, JOB, MODEL, QUEUE, SERVICE, path_of, path_of_all
from fairway.cli.argument_parser import FORMAT, CliCommand, CommandOptions, PositionalArgument
from fairway.cli.session import CommandSession
from fairway.cli.terminal.watch import WATCH, show


def get(options: CommandOptions) -> int:
    """Print all details of the named objects; without a name, the list of runs."""
    session = CommandSession(options)
    kinds = (JOB, SERVICE, QUEUE, MODEL, DATA)
    return show(session, [path_of_all(address) or path_of(address, kinds=kinds) for address in options.words or ["jobs"]])


COMMANDS = {
    "": CliCommand(
        "get",
        "Show one run: its tasks, progress, warnings and how it ended. The name of a series stands for its newest run. "
        "Write services, queues, models and datasets with their kind: service/NAME.",
        get,
        words=(
            PositionalArgument(
                "NAME",
                "a run (mnist-7), a series (mnist: its newest run), service/, queue/, model/ or data/NAME",
                optional=True,
                many=True,
            ),
        ),
        flags=(WATCH, FORMAT),
        examples=(
            "fairway get mnist",
            "fairway get job/mnist-7 -o yaml",
            "fairway get service/mnist",
            "fairway get model/mnist@champion data/mnist@3",
        ),
    )
}
