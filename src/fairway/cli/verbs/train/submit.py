"""`fairway submit`: queue a document or a command and return at once."""

from __future__ import annotations

from fairway.cli.argument_parser import FORMAT_SHORT, PLAN, CliCommand, CommandFlag, CommandOptions, PositionalArgument
from fairway.cli.flag.job import FLAGS
from fairway.cli.session import CommandSession
from fairway.cli.submission import like_body, print_plan, print_submitted, submit_body, submit_jobs
from fairway.errors import UsageError


def submit(options: CommandOptions) -> int:
    """Queue the document or command and print the names of the new runs."""
    sources = sum(map(bool, (options.word(), options.rest or options.text("like"))))
    if sources != 1:
        message = "one document or one command is needed, or one run with --like"
        fix = "fairway submit job.yaml, fairway submit -- python train.py, or fairway submit --like mnist-7"
        raise UsageError(message, fix=fix)
    session = CommandSession(options)
    if not options.on("plan"):
        session.announce()
    repeats = bool(options.text("like"))
    body = like_body(session, options) if repeats else submit_body(session, options, in_place=options.on("in-place"))
    if options.on("plan"):
        return print_plan(session, "/v1/jobs", body)
    return print_submitted(session, submit_jobs(session, body, options.text("key")))


COMMANDS = {
    "": CliCommand(
        "submit",
        "Queue a document as a new run and return. Each submit of NAME creates the next of NAME-1, NAME-2 ...",
        submit,
        words=(PositionalArgument("FILE", "a document; - reads it from standard input", optional=True),),
        flags=(
            CommandFlag("--like", "submit a copy of this run, changed by the other flags and by a COMMAND", "RUN"),
            CommandFlag("--key", "idempotency key: the same key within a day returns the run that was created before", "KEY"),
            *FLAGS,
            PLAN,
            FORMAT_SHORT,
        ),
        rest="COMMAND...",
        examples=(
            "fairway submit job.yaml",
            "fairway submit job.yaml --workers 4 --plan -o yaml",
            "fairway submit --like mnist-7 --gpus 2",
            "fairway submit --like mnist-7 -- python train.py --lr 0.01",
            "fairway submit job.yaml --key build-4711",
            "fairway wait $(fairway submit job.yaml)",
        ),
    )
}
