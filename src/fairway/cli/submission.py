"""Submission of runs, shared by `run`, `submit` and `apply`: the request body, and the messages about the reply."""

from __future__ import annotations

import os

from fairway.cli.address import job_path
from fairway.cli.flag.job import read_wishes
from fairway.cli.session import say, show_line, write, write_json
from fairway.errors import UsageError
from fairway.sdk.submission import document

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fairway.cli.argument_parser import CommandOptions
    from fairway.cli.session import CommandSession


_NAMED = 4
"""Number of paths left out of a snapshot that a message lists."""


def submit_body(
    session: CommandSession, options: CommandOptions, *, in_place: bool, terminal: bool = False, stdin: str = ""
) -> dict[str, Any]:
    """Return the body of a submit from the flags and a command, which runs `in_place` or not, or a file, which decides that."""
    if session.cluster is None:
        return _local_body(session, options, in_place=in_place, terminal=terminal, stdin=stdin)
    from fairway.cli.cluster.upload import for_cluster

    body = _local_body(session, options, in_place=options.on("in-place"))
    return for_cluster(session, body, folder=body["origin"]["folder"], plan=options.on("plan"))


def _local_body(
    session: CommandSession, options: CommandOptions, *, in_place: bool, terminal: bool = False, stdin: str = ""
) -> dict[str, Any]:
    wishes = read_wishes(options)
    if options.rest:
        body: dict[str, Any] = {
            "document": document.make_document(options.rest, wishes, namespace=session.namespace, in_place=in_place),
            "origin": _origin(os.getcwd(), terminal, stdin),
        }
        return {**body, "environment": document.read_environment(in_place=in_place)}
    text, folder = document.read_documents(options.word())
    file = "" if options.word() == "-" else options.word()
    body = {"documents": text, "file": file, "origin": _origin(folder, terminal, stdin)}
    body["environment"] = document.read_environment(in_place=options.on("in-place") or document.is_in_place(text))
    if wishes or options.on("in-place") or options.on("snapshot"):
        changed = document.change_document(_read_one(session, text, file), wishes)
        if options.on("in-place") or options.on("snapshot"):
            changed = document.lay_over(changed, {"spec": {"code": {"inPlace": options.on("in-place")}}})
        return {**body, "documents": "", "document": changed}
    return body


def like_body(session: CommandSession, options: CommandOptions) -> dict[str, Any]:
    """Return the body of a submit that repeats another run's document, changed by flags and a command."""
    run = session.fetch(job_path(options.text("like")))
    changes = document.change_document(
        {"spec": {"roles": {role: {} for role in run["roles"]}}}, read_wishes(options), options.rest
    )
    if options.on("in-place") or options.on("snapshot"):
        changes = document.lay_over(changes, {"spec": {"code": {"inPlace": options.on("in-place")}}})
    origin = _origin(os.getcwd(), terminal=False, stdin="")
    return {"like": run["name"], "document": changes, "origin": origin, "environment": document.read_environment()}


def _origin(folder: str, terminal: bool, stdin: str) -> dict[str, Any]:
    return document.make_run_origin(folder, interpreter=document.find_python(), terminal=terminal, stdin=stdin)


def _read_one(session: CommandSession, text: str, file: str) -> dict[str, Any]:
    """Return the file's only document, checked by the daemon so that its mistakes are reported with their positions."""
    import yaml

    rendered = session.call("POST", "/v1/render", body={"documents": text, "file": file, "to": "kubernetes"}).read()
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(rendered))
    if len(documents) != 1:
        message = f"{file or 'the text'} holds {len(documents)} documents, and flags change only one"
        raise UsageError(message, fix="leave the flags out")
    return documents[0]


def submit_jobs(session: CommandSession, body: dict[str, Any], key: str = "") -> list[dict[str, Any]]:
    """Send the body and return the new runs; with a key that was used before, the runs that it created then."""
    jobs = runs_of(session.send("POST", "/v1/jobs", body, key=key))
    left_out = next((job["left_out"] for job in jobs if job.get("left_out")), ())
    if left_out:
        # The documents of one file share a folder.
        listing = ", ".join(left_out[:_NAMED]) + (f" and {len(left_out) - _NAMED} more" if len(left_out) > _NAMED else "")
        say(f"ignore files excluded {listing} from the copy; to include one: echo '!/{left_out[0]}' >> .fairwayignore")
    return jobs


def runs_of(reply: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the runs of a reply, which holds one run or a list."""
    jobs: list[dict[str, Any]] = reply.get("jobs", [reply])
    return jobs


def show_runs(session: CommandSession, jobs: list[dict[str, Any]]) -> None:
    """Print changed runs as data: their names, unless another format is requested."""
    if session.output == "json":
        write_json(jobs[0] if len(jobs) == 1 else {"jobs": jobs})
        return
    for job in jobs:
        if session.options.text("format") in ("", "name"):
            show_line(job["name"])
        else:
            session.show(job_path(job["name"]))


def print_submitted(session: CommandSession, jobs: list[dict[str, Any]]) -> int:
    """Print the names of new runs as data, and the next commands as a message."""
    show_runs(session, jobs)
    for warning in (warning for job in jobs for warning in job.get("warnings") or ()):
        say(f"warning: {warning}")
    last = jobs[-1]["name"]
    say(f"next: fairway logs -f {last}; fairway get {last}; fairway stop {last}")
    return 0


def print_plan(session: CommandSession, path: str, body: dict[str, Any]) -> int:
    """Print the daemon's plan; on a cluster as YAML or JSON, the objects that would be created.

    Return 1 if something is missing that a run would need.
    """
    planned = b""
    if session.cluster is not None and session.output in ("yaml", "json"):
        _print_objects(session.send("POST", path, {**body, "plan": True})["documents"], session.output)
    else:
        planned = session.call("POST", path, session.look(), {**body, "plan": True}).read()
        write(planned)
    say("nothing was changed (--plan)")
    return 1 if _misses(planned, session.output) else 0


def _misses(planned: bytes, output: str) -> bool:
    """Whether a plan, in the requested format, names something missing."""
    if output == "json":
        import json

        return bool(json.loads(planned).get("missing"))
    return any(line.startswith(b"missing:") and not line.endswith(b"[]") for line in planned.splitlines())


def _print_objects(documents: list[dict[str, Any]], output: str) -> None:
    """Print objects in a form that `kubectl apply -f -` accepts."""
    if output == "json":
        write_json({"apiVersion": "v1", "kind": "List", "items": documents})
        return
    import yaml

    write(yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True, width=120).encode())
