"""`fairway delete`: remove runs, queues and services for good."""

from __future__ import annotations

from fairway.cli.grammar import FORMAT, PLAN, Command, Flag, Options, Word
from fairway.cli.session import (
    Session,
    is_queue,
    is_service,
    job_path,
    queue_path,
    say,
    service_path,
    show_line,
    write,
    write_json,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fairway.sdk.wire import Query


def delete(options: Options) -> int:
    """Remove runs with all that is kept of them (one that runs is killed first), queues that nobody uses, and services."""
    session = Session(options)
    asked = [_request(address, options) for address in options.words]
    if options.on("plan"):
        for path, query in asked:
            write(session.call("DELETE", path, {**query, "plan": True, **session.look()}).read())
        say("nothing was changed (--plan)")
        return 0
    session.announce()
    deleted = [name for path, query in asked for name in session.send("DELETE", path, query=query)["deleted"]]
    if session.output == "json":
        write_json({"deleted": deleted})
    else:
        show_line("\n".join(deleted))
    queues = sum(is_queue(address) for address in options.words)
    services = sum(is_service(address) for address in options.words)
    say(_said(len(deleted) - queues - services, queues, services))
    return 0


def _request(address: str, options: Options) -> tuple[str, Query]:
    if is_queue(address):
        return queue_path(address), {}
    if is_service(address):
        return service_path(address), {}
    # A bare name means a job; the daemon refuses it when a queue or a service has it too.
    return job_path(address), {"all": options.on("all"), "bare": "/" not in address}


def _said(runs: int, queues: int, services: int) -> str:
    parts = ((runs, "run"), (queues, "queue"), (services, "service"))
    counts = [f"{number} {word}{'' if number == 1 else 's'}" for number, word in parts if number]
    return f"{' and '.join(counts) or 'no runs'} {'is' if runs + queues + services == 1 else 'are'} deleted"


COMMANDS = {
    "": Command(
        "delete",
        "Remove runs with their logs, checkpoints and outputs; one that runs is killed first. There is no way back. "
        "A queue goes when no run waits or runs in it; a service finishes what it was asked first.",
        delete,
        words=(Word("NAME", "a run, a series with one run, queue/NAME or service/NAME", many=True),),
        flags=(Flag("--all", "every run of a series"), PLAN, FORMAT),
        examples=(
            "fairway delete mnist-3",
            "fairway delete --all mnist --plan",
            "fairway delete queue/research",
            "fairway delete service/mnist",
        ),
    )
}
