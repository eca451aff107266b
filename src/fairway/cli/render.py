"""`fairway render`: convert a document between the flat and the Kubernetes spelling."""

from __future__ import annotations

from fairway.cli.grammar import Command, Flag, Options, Word
from fairway.cli.session import Session, write
from fairway.sdk import document


def render(options: Options) -> int:
    """Print the document as parsed, in the requested spelling."""
    session = Session(options)
    text, _ = document.read_documents(options.word())
    to = options.text("to", "kubernetes")
    name = "" if options.word() == "-" else options.word()
    write(session.call("POST", "/v1/render", body={"documents": text, "file": name, "to": to}).read())
    return 0


COMMANDS = {
    "": Command(
        "render",
        "Check a document and print it in the other spelling: flat for people, kubernetes for kubectl apply.",
        render,
        words=(Word("FILE", "a document; - reads it from standard input"),),
        flags=(Flag("--to", "flat or kubernetes (default)", "SPELLING", choices=("flat", "kubernetes")),),
        examples=("fairway render job.yaml --to kubernetes | kubectl apply -f -",),
    )
}
