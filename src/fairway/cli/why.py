"""`fairway why`: the reason, and what would help."""

from __future__ import annotations

from fairway.cli.grammar import FORMAT, Command, Options, Word
from fairway.cli.session import Session, job_path


def why(options: Options) -> int:
    """Print why a run is where it is."""
    Session(options).show(job_path(options.word(), "/why"))
    return 0


COMMANDS = {
    "": Command(
        "why",
        "Say why a run waits, restarts or failed, and what would help.",
        why,
        words=(Word("NAME", "a run, or a series for its newest run"),),
        flags=(FORMAT,),
    )
}
