"""`fairway render`: convert a document between the flat and the Kubernetes spelling."""

from __future__ import annotations

from fairway.cli.argument_parser import CliCommand, CommandFlag, CommandOptions, PositionalArgument
from fairway.cli.session import CommandSession, write
from fairway.sdk.submission import document


def render(options: CommandOptions) -> int:
    """Print the document as parsed, in the requested spelling."""
    session = CommandSession(options)
    text, _ = document.read_documents(options.word())
    to = options.text("to", "kubernetes")
    name = "" if options.word() == "-" else options.word()
    write(session.call("POST", "/v1/render", body={"documents": text, "file": name, "to": to}).read())
    return 0


COMMANDS = {
    "": CliCommand(
        "render",
        "Check a document and print it in the other spelling: flat for people, kubernetes for kubectl apply.",
        render,
        words=(PositionalArgument("FILE", "a document; - reads it from standard input"),),
        flags=(CommandFlag("--to", "flat or kubernetes (default)", "SPELLING", choices=("flat", "kubernetes")),),
        examples=("fairway render job.yaml --to kubernetes | kubectl apply -f -",),
    )
}
