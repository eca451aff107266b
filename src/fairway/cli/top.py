"""`fairway top`: what uses the machine."""

from __future__ import annotations

from fairway.cli.grammar import FORMAT, Command, Options, Word
from fairway.cli.session import Session
from fairway.sdk.wire import quote


def top_node(options: Options) -> int:
    """Print nodes: capacity, what is taken, what is left, device by device."""
    name = options.word()
    Session(options).show(f"/v1/nodes/{quote(name)}" if name else "/v1/nodes")
    return 0


def top_job(options: Options) -> int:
    """Print running jobs with what they use."""
    Session(options).show("/v1/top/jobs")
    return 0


COMMANDS = {
    "node": Command(
        "top node",
        "Show what there is, what is taken and what is left.",
        top_node,
        words=(Word("NAME", "only this node", optional=True),),
        flags=(FORMAT,),
    ),
    "job": Command(
        "top job",
        "Show what running jobs use.",
        top_job,
        flags=(FORMAT,),
    ),
}
