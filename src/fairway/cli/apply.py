"""`fairway apply`: documents of any kind, declaratively."""

from __future__ import annotations

import os

from fairway.cli.grammar import FORMAT, PLAN, Command, Flag, Options, Word
from fairway.cli.session import Session, say, write
from fairway.cli.submission import print_plan
from fairway.errors import UsageError
from fairway.sdk import document

_ENDINGS = (".yaml", ".yml", ".json")


def apply(options: Options) -> int:
    """Apply every file named, and every document file of the folders named, in order of name."""
    files = [file for path in [*options.many("filename"), *options.words] for file in _files(path)]
    if not files:
        message = "no document is named"
        raise UsageError(message, fix="fairway apply -f folder/")
    session = Session(options)
    bodies = [_body(file) for file in files]
    if options.on("plan"):
        return max(print_plan(session, "/v1/apply", body) for body in bodies)
    session.announce()
    if len(bodies) > 1:
        # Every file is checked before the first is applied: a mistake in the last one changes nothing.
        for body in bodies:
            session.call("POST", "/v1/apply", body={**body, "plan": True}).read()
    for file, body in zip(files, bodies, strict=True):
        if len(files) > 1:
            say(file)
        write(session.call("POST", "/v1/apply", session.look(), body).read())
    return 0


def _body(file: str) -> dict[str, object]:
    text, folder = document.read_documents(file)
    name = "" if file == "-" else file
    return {"documents": text, "file": name, "folder": folder, "origin": _origin(folder)}


def _origin(folder: str) -> dict[str, object]:
    return document.make_origin(folder, interpreter=document.find_python())


def _files(path: str) -> list[str]:
    if not os.path.isdir(path):
        return [path]
    found = sorted(os.path.join(path, name) for name in os.listdir(path) if name.endswith(_ENDINGS))
    if not found:
        message = f"{path} holds no document"
        raise UsageError(message, fix=f"documents end in {', '.join(_ENDINGS)}")
    return found


COMMANDS = {
    "": Command(
        "apply",
        "Apply documents: what is new or changed is submitted, what is as it was is left alone.",
        apply,
        words=(Word("FILE", "a document or a folder of documents; - reads standard input", optional=True, many=True),),
        flags=(Flag("--filename -f", "a document or a folder; may be given again", "FILE", many=True), PLAN, FORMAT),
        examples=("fairway apply -f jobs/", "fairway apply -f job.yaml --plan"),
    )
}
