"""`fairway delete`: remove runs for good."""

from __future__ import annotations

from fairway.cli.grammar import FORMAT, PLAN, Command, Flag, Options, Word
from fairway.cli.session import Session, job_path, say, show_line, write, write_json


def delete(options: Options) -> int:
    """Remove runs with all that is kept of them; one that runs is killed first."""
    session = Session(options)
    query = {"all": options.on("all")}
    if options.on("plan"):
        for name in options.words:
            write(session.call("DELETE", job_path(name), {**query, "plan": True, **session.look()}).read())
        say("nothing was changed (--plan)")
        return 0
    session.announce()
    deleted = [name for address in options.words for name in session.send("DELETE", job_path(address), query=query)["deleted"]]
    if session.output == "json":
        write_json({"deleted": deleted})
    else:
        show_line("\n".join(deleted))
    say(f"{len(deleted)} {'run is' if len(deleted) == 1 else 'runs are'} deleted")
    return 0


COMMANDS = {
    "": Command(
        "delete",
        "Remove runs with their logs, checkpoints and outputs; one that runs is killed first. There is no way back.",
        delete,
        words=(Word("NAME", "a run, or a series with one run", many=True),),
        flags=(Flag("--all", "every run of a series"), PLAN, FORMAT),
        examples=("fairway delete mnist-3", "fairway delete --all mnist --plan"),
    )
}
