"""`fairway secret`: secret values for tasks."""

from __future__ import annotations

import sys

from fairway.cli.argument_parser import FORMAT, PLAN, CliCommand, CommandFlag, CommandOptions, PositionalArgument
from fairway.cli.session import CommandSession, is_terminal, say
from fairway.errors import UsageError
from fairway.sdk.transport.http import quote


def set_secret(options: CommandOptions) -> int:
    """Store a value. It is never read from the command line, where other users could see it."""
    session = CommandSession(options)
    name = options.word()
    if "=" in name:
        message = (
            f"the value of {name.partition('=')[0]} must not be given on the command line: it would stay in your shell's history"
        )
        raise UsageError(
            message,
            fix=f"fairway secret set {name.partition('=')[0]}   (prompts for the value, or reads standard input)",
        )
    if options.on("plan"):
        say(f"the secret {name} would be set; nothing was changed (--plan)")
        return 0
    session.announce()
    value = _read_value(options)
    if not value:
        message = f"the value of {name} is empty"
        raise UsageError(message, fix=f"echo -n VALUE | fairway secret set {name}")
    session.send("PUT", f"/v1/secrets/{quote(name)}", {"value": value})
    say(f"the secret {name} is set; to use it: secrets: [{name}], or --secret {name}")
    return 0


def _read_value(options: CommandOptions) -> str:
    if options.text("from-file"):
        try:
            with open(options.text("from-file"), encoding="utf-8") as file:
                return file.read()
        except (OSError, UnicodeDecodeError) as error:
            message = f"--from-file {options.text('from-file')}: {error}"
            raise UsageError(message) from None
    if is_terminal(0):
        import getpass

        return getpass.getpass(f"{options.word()}: ")
    return sys.stdin.read().removesuffix("\n")


def list_secrets(options: CommandOptions) -> int:
    """Print names; values are never shown."""
    CommandSession(options).show("/v1/secrets")
    return 0


def delete_secret(options: CommandOptions) -> int:
    """Delete secrets. Runs that have started keep the values they received."""
    session = CommandSession(options)
    if options.on("plan"):
        say(f"{', '.join(options.words)} would be deleted; nothing was changed (--plan)")
        return 0
    session.announce()
    for name in options.words:
        session.send("DELETE", f"/v1/secrets/{quote(name)}")
        say(f"the secret {name} is deleted")
    return 0


COMMANDS = {
    "set": CliCommand(
        "secret set",
        "Store a secret value under a name. The value is prompted for, or read from standard input or a file.",
        set_secret,
        words=(PositionalArgument("NAME", "the variable that tasks will see: HF_TOKEN"),),
        flags=(CommandFlag("--from-file", "read the value from a file", "FILE"), PLAN),
        examples=("fairway secret set HF_TOKEN", "pass show hf | fairway secret set HF_TOKEN"),
    ),
    "list": CliCommand("secret list", "List the names of secrets.", list_secrets, flags=(FORMAT,)),
    "delete": CliCommand(
        "secret delete",
        "Delete secrets.",
        delete_secret,
        words=(PositionalArgument("NAME", "a secret", many=True),),
        flags=(PLAN,),
    ),
}
