"""`fairway schema`: the JSON Schema of documents."""

from __future__ import annotations

from fairway.cli.grammar import Command, Options
from fairway.cli.session import Session, write_json


def schema(options: Options) -> int:
    """Print the schema as JSON."""
    write_json(Session(options).fetch("/v1/schema"))
    return 0


COMMANDS = {
    "": Command(
        "schema",
        "Print the JSON Schema of documents, for editors.",
        schema,
        examples=("fairway schema > fairway.schema.json", "# in job.yaml:  # yaml-language-server: $schema=fairway.schema.json"),
    )
}
