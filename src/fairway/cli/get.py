"""`fairway get`: show objects of any kind by their addresses."""

from __future__ import annotations

from fairway.cli.address import DATA, JOB, MODEL, QUEUE, SERVICE, path_of, path_of_all
from fairway.cli.grammar import FORMAT, Command, Options, Word
from fairway.cli.session import Session
from fairway.cli.watching import WATCH, show


def get(options: Options) -> int:
    """Print all details of the named objects; without a name, the list of runs."""
    session = Session(options)
    kinds = (JOB, SERVICE, QUEUE, MODEL, DATA)
    return show(session, [path_of_all(address) or path_of(address, kinds=kinds) for address in options.words or ["jobs"]])


COMMANDS = {
    "": Command(
        "get",
        "Show one run: its tasks, progress, warnings and how it ended. The name of a series stands for its newest run. "
        "Write services, queues, models and datasets with their kind: service/NAME.",
        get,
        words=(
            Word(
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
