"""`fairway stop`: stop runs; their logs, checkpoints and outputs are kept."""

from __future__ import annotations

from fairway.cli.address import job_path
from fairway.cli.argument_parser import FORMAT, PLAN, CliCommand, CommandFlag, CommandOptions, PositionalArgument
from fairway.cli.flag.selector import SELECTOR, need_words, select
from fairway.cli.session import CommandSession, say
from fairway.cli.submission import print_plan, runs_of, show_runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def stop(options: CommandOptions) -> int:
    """Stop runs; with --wait, return when they have ended."""
    need_words(options)
    session = CommandSession(options)
    body = {"now": options.on("now"), "all": options.on("all")}
    by_selector = not options.words or bool(options.many("label"))
    names = [job["name"] for job in select(session, options, "active")] if by_selector else options.words
    if not names:
        say("no active run matches; nothing was changed")
        return 0
    if options.on("plan"):
        return max(print_plan(session, job_path(name, "/stop"), body) for name in names)
    session.announce()
    jobs = [job for name in names for job in runs_of(session.send("POST", job_path(name, "/stop"), body))]
    if options.on("wait"):
        from fairway.cli.verbs.train.wait import wait_for

        jobs = [wait_for(session, job["name"], None) for job in jobs]
    show_runs(session, jobs)
    for job in jobs:
        say(_words(job))
    return 0


def _words(job: dict[str, Any]) -> str:
    name = job["name"]
    if job["phase"] == "Stopped":
        return f"{name} is stopped; to continue: fairway resume {name}"
    if job["phase"] in ("Succeeded", "Failed"):
        return f"{name} had already ended ({job['phase']})"
    return f"{name} is being stopped; its checkpoints and outputs are kept; to continue later: fairway resume {name}"


COMMANDS = {
    "": CliCommand(
        "stop",
        "Stop runs with SIGTERM, then SIGKILL after a grace period. Logs, checkpoints and outputs are kept for `fairway resume`.",
        stop,
        words=(
            PositionalArgument(
                "NAME", "a run, or a series with one active run; with -l, only runs of these series", many=True, optional=True
            ),
        ),
        flags=(
            CommandFlag("--now", "kill at once, without a grace period"),
            CommandFlag("--all", "every active run of a series; without a name, every active run"),
            SELECTOR,
            CommandFlag("--wait", "return only when the runs have ended"),
            PLAN,
            FORMAT,
        ),
        examples=("fairway stop mnist-7", "fairway stop --all mnist", "fairway stop -l team=nlp"),
    )
}
