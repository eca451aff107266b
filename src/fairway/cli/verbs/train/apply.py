"""`fairway apply`: apply documents of any kind declaratively."""

from __future__ import annotations

import os

from fairway.cli.argument_parser import FORMAT, PLAN, CliCommand, CommandFlag, CommandOptions, PositionalArgument
from fairway.cli.session import CommandSession, write
from fairway.cli.submission import print_plan
from fairway.errors import UsageError
from fairway.sdk.submission import document

_ENDINGS = (".yaml", ".yml", ".json")


def apply(options: CommandOptions) -> int:
    """Apply every named file, and every document file of the named folders in order of name."""
    files = [file for path in [*options.many("filename"), *options.words] for file in _files(path)]
    if not files:
        message = "no document was given"
        raise UsageError(message, fix="fairway apply -f folder/")
    session = CommandSession(options)
    # One request carries all files: a mistake in any of them changes nothing, and a job may name a queue of another file.
    first, *more = [_part(file) for file in files]
    if session.cluster is not None:
        from fairway.cli.cluster.upload import for_cluster

        first, *more = [
            for_cluster(session, part, folder=str(part["folder"]), plan=options.on("plan")) for part in (first, *more)
        ]
    body = {**first, "more": more, "origin": document.make_origin(str(first["folder"]), interpreter=document.find_python())}
    if options.on("plan"):
        return print_plan(session, "/v1/apply", body)
    session.announce()
    write(session.change("POST", "/v1/apply", body, session.look()))
    return 0


def _part(file: str) -> dict[str, object]:
    text, folder = document.read_documents(file)
    return {"documents": text, "file": "" if file == "-" else file, "folder": folder}


def _files(path: str) -> list[str]:
    if not os.path.isdir(path):
        return [path]
    files = sorted(os.path.join(path, name) for name in os.listdir(path) if name.endswith(_ENDINGS))
    if not files:
        message = f"{path} contains no document"
        raise UsageError(message, fix=f"file names of documents end in {', '.join(_ENDINGS)}")
    return files


COMMANDS = {
    "": CliCommand(
        "apply",
        "Apply documents: submit new and changed jobs, create or change queues and services, leave everything else as it is.",
        apply,
        words=(
            PositionalArgument("FILE", "a document or a folder of documents; - reads standard input", optional=True, many=True),
        ),
        flags=(CommandFlag("--filename -f", "a document or a folder; may be given again", "FILE", many=True), PLAN, FORMAT),
        examples=("fairway apply -f jobs/", "fairway apply -f job.yaml --plan", "fairway apply -f queue.yaml"),
    )
}
