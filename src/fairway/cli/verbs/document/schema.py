"""`fairway schema`: the JSON Schema of documents."""

from __future__ import annotations

from fairway.cli.argument_parser import CliCommand, CommandOptions
from fairway.cli.session import CommandSession, write_json


def schema(options: CommandOptions) -> int:
    """Print the schema as JSON."""
    write_json(CommandSession(options).fetch("/v1/schema"))
    return 0


COMMANDS = {
    "": CliCommand(
        "schema",
        "Print the JSON Schema of documents, for editors.",
        schema,
        examples=("fairway schema > fairway.schema.json", "# in job.yaml:  # yaml-language-server: $schema=fairway.schema.json"),
    )
}
