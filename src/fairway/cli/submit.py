"""`fairway submit`: queue a document, or a command, and come back at once."""

from __future__ import annotations

from fairway.cli.document import FLAGS
from fairway.cli.grammar import FORMAT_SHORT, PLAN, Command, Options, Word
from fairway.cli.session import Session
from fairway.cli.submission import print_plan, print_submitted, submit_body, submit_jobs
from fairway.errors import UsageError


def submit(options: Options) -> int:
    """Queue it and print the names of the new runs."""
    if bool(options.word()) == bool(options.rest):
        message = "one document or one command is needed"
        raise UsageError(message, fix="fairway submit job.yaml, or fairway submit -- python train.py")
    session = Session(options)
    if not options.on("plan"):
        session.announce()
    body = submit_body(session, options, in_place=options.on("in-place"))
    if options.on("plan"):
        return print_plan(session, "/v1/jobs", body)
    return print_submitted(session, submit_jobs(session, body))


COMMANDS = {
    "": Command(
        "submit",
        "Queue a document as a new run and return. Each submit of NAME makes the next of NAME-1, NAME-2 ...",
        submit,
        words=(Word("FILE", "a document; - reads it from standard input", optional=True),),
        flags=(*FLAGS, PLAN, FORMAT_SHORT),
        rest="COMMAND...",
        examples=(
            "fairway submit job.yaml",
            "fairway submit job.yaml --workers 4 --plan -o yaml",
            "fairway wait $(fairway submit job.yaml)",
        ),
    )
}
