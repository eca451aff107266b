"""`fairway defragment`: move runs so that free GPUs lie together and a waiting run starts."""

from __future__ import annotations

from fairway.cli.argument_parser import FORMAT, PLAN, CliCommand, CommandFlag, CommandOptions
from fairway.cli.session import CommandSession, say, write


def defragment(options: CommandOptions) -> int:
    """Request a defragmentation with as few moves as possible; with --plan only print the moves."""
    session = CommandSession(options)
    if not options.on("plan"):
        session.announce()
    body = {"plan": options.on("plan"), "moves": options.number("moves") or 0}
    write(session.call("POST", "/v1/defragment", session.look(), body).read())
    if options.on("plan"):
        say("nothing was changed (--plan)")
    return 0


COMMANDS = {
    "": CliCommand(
        "defragment",
        "Move as few runs as possible so that free GPUs are together and a waiting run can start. Only runs that save "
        "checkpoints are moved; each resumes at once on GPUs of the same type, as close together as before. Never automatic.",
        defragment,
        flags=(CommandFlag("--moves", "maximum number of runs to move (default: 3)", "N", number=True), PLAN, FORMAT),
        examples=("fairway defragment --plan", "fairway defragment --moves 1"),
    )
}
