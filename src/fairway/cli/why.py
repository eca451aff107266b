"""`fairway why`: the reason for the state of a run or service, and what would help."""

from __future__ import annotations

from fairway.cli.address import path_of
from fairway.cli.grammar import FORMAT, Command, Options, Word
from fairway.cli.session import Session


def why(options: Options) -> int:
    """Print the reason for the state of a run, or for the number of replicas of a service."""
    Session(options).show(path_of(options.word(), "/why"))
    return 0


COMMANDS = {
    "": Command(
        "why",
        "Explain why a run waits, restarts or failed, and what would help; for a service, which rule set its number of replicas.",
        why,
        words=(Word("NAME", "a run, a series for its newest run, or service/NAME"),),
        flags=(FORMAT,),
    )
}
