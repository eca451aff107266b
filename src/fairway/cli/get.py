"""`fairway get`: one run, or several; queues and services by their address."""

from __future__ import annotations

from fairway.cli.grammar import FORMAT, Command, Options, Word
from fairway.cli.session import SERVICES, Session, is_queue, path_of, queue_path


def get(options: Options) -> int:
    """Print all there is to know; without a name, the list."""
    session = Session(options)
    for address in options.words or ["jobs"]:
        if address == "jobs":
            session.show("/v1/jobs")
        elif address in SERVICES:
            session.show("/v1/services")
        else:
            session.show(queue_path(address) if is_queue(address) else path_of(address))
    return 0


COMMANDS = {
    "": Command(
        "get",
        "Show one run: its tasks, progress, warnings and how it ended. NAME means the newest run of a series.",
        get,
        words=(Word("NAME", "a run (mnist-7), a series (mnist: its newest run), or service/NAME", optional=True, many=True),),
        flags=(FORMAT,),
        examples=("fairway get mnist", "fairway get job/mnist-7 -o yaml", "fairway get service/mnist"),
    )
}
