"""`fairway delete`: permanently remove runs, queues, services and versions."""

from __future__ import annotations

from fairway.cli.address import DATA, JOB, MODEL, QUEUE, SERVICE, path_of, split
from fairway.cli.argument_parser import FORMAT, PLAN, CliCommand, CommandFlag, CommandOptions, PositionalArgument
from fairway.cli.flag.selector import SELECTOR, YES, confirm, need_words, select
from fairway.cli.session import CommandSession, say, show_line, write, write_json
from fairway.errors import UsageError

_KINDS = (JOB, QUEUE, SERVICE, MODEL, DATA)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fairway.sdk.transport.http import Query


def delete(options: CommandOptions) -> int:
    """Remove runs with all their files, killing those that are running first, and objects of other kinds that are not in use."""
    need_words(options)
    session = CommandSession(options)
    selected = _chosen(session, options)
    if selected is not None and not selected:
        say("no run matches; nothing was changed")
        return 0
    requests = [_request(address, options) for address in (options.words if selected is None else selected)]
    if options.on("plan"):
        for path, query in requests:
            write(session.call("DELETE", path, {**query, "plan": True, **session.look()}).read())
        say("nothing was changed (--plan)")
        return 0
    if (options.on("all") or selected) and not confirm(options, lambda: _runs(session, requests)):
        return 1
    session.announce()
    deleted = [name for path, query in requests for name in session.send("DELETE", path, query=query)["deleted"]]
    if session.output == "json":
        write_json({"deleted": deleted})
    else:
        show_line("\n".join(deleted))
    kinds = [split(address, _KINDS)[0] for address in options.words] if selected is None else []
    counts = {kind: kinds.count(kind) for kind in _KINDS if kind != JOB}
    say(_said({JOB: len(deleted) - sum(counts.values()), **counts}))
    return 0


def _chosen(session: CommandSession, options: CommandOptions) -> list[str] | None:
    """Return the addresses of the runs selected by labels, or by --all without a name; None if names are given."""
    if not options.many("label") and (options.words or not options.on("all")):
        return None
    return [f"job/{job['name']}" for job in select(session, options)]


def _runs(session: CommandSession, asked: list[tuple[str, Query]]) -> list[str]:
    """Return the names of the runs that would be deleted."""
    planned = [session.send("DELETE", path, query={**query, "plan": True}) for path, query in asked]
    return [name for plan in planned for name in plan["jobs"]]


def _request(address: str, options: CommandOptions) -> tuple[str, Query]:
    kind, name = split(address, _KINDS)
    if kind in (MODEL, DATA) and "@" not in name:
        message = f"{address} does not name a version"
        collection = {MODEL: "models", DATA: "data"}[kind]
        raise UsageError(message, fix=f"write {address}@3; `fairway list {collection}` lists the versions")
    # A bare name means a job; the daemon refuses it if a queue or a service has the same name.
    query: Query = {"all": options.on("all"), "bare": "/" not in address} if kind == JOB else {}
    return path_of(address, kinds=_KINDS), query


def _said(counts: dict[str, int]) -> str:
    nouns = {JOB: "run", MODEL: "version of a model", DATA: "version of a dataset"}
    parts = [_counted(number, nouns.get(kind, kind)) for kind, number in counts.items() if number]
    return f"{' and '.join(parts) or 'no runs'} {'is' if sum(counts.values()) == 1 else 'are'} deleted"


def _counted(number: int, word: str) -> str:
    """Return a number with its noun: `2 versions of a model`."""
    first, blank, rest = word.partition(" ")
    return f"{number} {first}{'' if number == 1 else 's'}{blank}{rest}"


COMMANDS = {
    "": CliCommand(
        "delete",
        "Delete runs with their logs, checkpoints and outputs; a running one is killed first. This cannot be undone. "
        "A queue is deleted only if no run waits or runs in it; a service first finishes its open requests; a version "
        "of a model is deleted only if it has no alias and no service uses it, one of a dataset only if no run uses it.",
        delete,
        words=(
            PositionalArgument(
                "NAME",
                "a run, a series with one run, queue/NAME, service/NAME, model/NAME@3 or data/NAME@3",
                many=True,
                optional=True,
            ),
        ),
        flags=(
            CommandFlag("--all", "every run of a series; without a name, every run. Asks for confirmation unless -y is given"),
            SELECTOR,
            YES,
            PLAN,
            FORMAT,
        ),
        examples=(
            "fairway delete mnist-3",
            "fairway delete --all mnist --plan",
            "fairway delete -l stage=test -y",
            "fairway delete queue/research",
            "fairway delete service/mnist",
            "fairway delete model/mnist@2 data/mnist@1",
        ),
    )
}
