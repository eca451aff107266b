"""`fairway defragment`: move runs so that free GPUs lie together and a waiting run starts."""

from __future__ import annotations

from fairway.cli.grammar import FORMAT, PLAN, Command, Flag, Options
from fairway.cli.session import Session, say, write


def defragment(options: Options) -> int:
    """Request a defragmentation with as few moves as possible; with --plan only print the moves."""
    session = Session(options)
    if not options.on("plan"):
        session.announce()
    body = {"plan": options.on("plan"), "moves": options.number("moves") or 0}
    write(session.call("POST", "/v1/defragment", session.look(), body).read())
    if options.on("plan"):
        say("nothing was changed (--plan)")
    return 0


COMMANDS = {
    "": Command(
        "defragment",
        "Move runs that save checkpoints, as few as can be, so that free GPUs lie together and a waiting run starts. "
        "Each goes on at once, on GPUs of the same type, as close together as before. Nothing moves unless you ask.",
        defragment,
        flags=(Flag("--moves", "move so many runs at most (default: 3)", "N", number=True), PLAN, FORMAT),
        examples=("fairway defragment --plan", "fairway defragment --moves 1"),
    )
}
