"""`fairway resume`: continue a stopped or failed run."""

from __future__ import annotations

from fairway.cli.address import job_path
from fairway.cli.argument_parser import FORMAT, PLAN, CliCommand, CommandOptions, PositionalArgument
from fairway.cli.session import CommandSession, say, show_line, write_json
from fairway.cli.submission import runs_of, show_runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def resume(options: CommandOptions) -> int:
    """Queue runs again, from their last checkpoints."""
    session = CommandSession(options)
    if options.on("plan"):
        return _plan(session, [session.fetch(job_path(name)) for name in options.words])
    session.announce()
    for name in options.words:
        jobs = runs_of(session.send("POST", job_path(name, "/resume")))
        show_runs(session, jobs)
        for job in jobs:
            say(f"{job['name']} resumes {_from_where(job)}; fairway logs -f {job['name']}")
    return 0


def _plan(session: CommandSession, jobs: list[dict[str, Any]]) -> int:
    sentences = [f"{job['name']} {_consequence(job)}" for job in jobs]
    if session.output == "json":
        write_json({"sentences": sentences, "jobs": [job["name"] for job in jobs]})
    else:
        show_line("\n".join(sentences))
    say("nothing was changed (--plan)")
    return 0


def _consequence(job: dict[str, Any]) -> str:
    if job["phase"] not in ("Stopped", "Failed"):
        return f"is {job['phase']}: it would be refused; only a stopped or failed run can be resumed"
    return f"would be queued again, {_from_where(job)}"


def _from_where(job: dict[str, Any]) -> str:
    step = (job.get("progress") or {}).get("checkpoint_step")
    return f"from the checkpoint of step {step:,}" if step is not None else "from the beginning (it has no checkpoint)"


COMMANDS = {
    "": CliCommand(
        "resume",
        "Continue a stopped or failed run from its last checkpoint, with a new restart budget.",
        resume,
        words=(PositionalArgument("NAME", "a run, or a series for its newest run", many=True),),
        flags=(PLAN, FORMAT),
    )
}
