"""`fairway get`: one run, or several."""

from __future__ import annotations

from fairway.cli.grammar import FORMAT, Command, Options, Word
from fairway.cli.session import Session, is_queue, job_path, queue_path


def get(options: Options) -> int:
    """Print all there is to know; without a name, the list."""
    session = Session(options)
    if not options.words or options.words == ["jobs"]:
        session.show("/v1/jobs")
    for address in options.words if options.words != ["jobs"] else ():
        session.show(queue_path(address) if is_queue(address) else job_path(address))
    return 0


COMMANDS = {
    "": Command(
        "get",
        "Show one run: its tasks, progress, warnings and how it ended. NAME means the newest run of a series.",
        get,
        words=(Word("NAME", "a run (mnist-7) or a series (mnist: its newest run)", optional=True, many=True),),
        flags=(FORMAT,),
        examples=("fairway get mnist", "fairway get job/mnist-7 -o yaml"),
    )
}
