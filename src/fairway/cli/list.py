"""`fairway list`: the runs, newest first."""

from __future__ import annotations

from fairway.cli.address import job_name, path_of_all
from fairway.cli.grammar import FORMAT, Command, Flag, Options, Word
from fairway.cli.session import Session


def list_jobs(options: Options) -> int:
    """Print the runs that match."""
    session = Session(options)
    if options.on("all-namespaces"):
        session.namespace = "*"
    everything = path_of_all(options.word())
    if everything not in ("", "/v1/jobs"):
        session.show(everything)
        return 0
    phases = ",".join([*options.many("phase"), *(["active"] if options.on("active") else [])])
    series = job_name(options.word()) if options.word() and not everything else ""
    session.show(
        "/v1/jobs", {"series": series, "phase": phases, "limit": options.number("limit"), "before": options.text("before")}
    )
    return 0


COMMANDS = {
    "": Command(
        "list",
        "List runs, newest first.",
        list_jobs,
        words=(
            Word(
                "NAME",
                "only the runs of this series; `services`, `queues`, `models` or `datasets` lists those instead",
                optional=True,
            ),
        ),
        flags=(
            Flag("--phase", "only those in this phase: pending, running, failed ...; may be given again", "PHASE", many=True),
            Flag("--active", "only those that are not over"),
            Flag("--limit", "at most so many (default: 100)", "N", number=True),
            Flag("--before", "the page after this one: `next` of -o json", "CURSOR"),
            Flag("--all-namespaces -A", "in every namespace"),
            FORMAT,
        ),
        examples=(
            "fairway list",
            "fairway list mnist --phase failed",
            "fairway list services",
            "fairway list models",
            "fairway list -o json",
        ),
    )
}
