"""`fairway key`: the API keys of services."""

from __future__ import annotations

from fairway.cli.address import service_path
from fairway.cli.argument_parser import FORMAT, PLAN, CliCommand, CommandFlag, CommandOptions, PositionalArgument
from fairway.cli.session import CommandSession, say, show_line, write_json
from fairway.cli.submission import print_plan
from fairway.errors import UsageError
from fairway.sdk.transport.http import quote

_SERVICE = PositionalArgument("SERVICE", "a service: mnist or service/mnist")


def create(options: CommandOptions) -> int:
    """Create a key and print it, once."""
    session = CommandSession(options)
    name = options.text("name")
    if not name:
        message = "a key needs a name"
        raise UsageError(message, fix=f"fairway key create {options.word()} --name ci")
    body = {"name": name, "rate": options.text("rate"), "expires": options.text("expires")}
    path = service_path(options.word(), "/keys")
    if options.on("plan"):
        return print_plan(session, path, body)
    session.announce()
    created = session.send("POST", path, body)
    if options.text("format") == "json":
        write_json(created)
        return 0
    show_line(created["key"])
    say(f"this is the key {name}; it is shown only once and not stored: pass it on to its user now")
    say("clients send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`")
    service = session.fetch(service_path(options.word()))
    if not service["access"]["keys_required"]:
        say(f"{service['name']} requires no key yet: set `endpoint: {{keys: required}}` in its document, or serve it with --key")
    return 0


def list_keys(options: CommandOptions) -> int:
    """Print the names of the keys."""
    CommandSession(options).show(service_path(options.word(), "/keys"))
    return 0


def revoke(options: CommandOptions) -> int:
    """Revoke keys."""
    session = CommandSession(options)
    service, *names = options.words
    for name in names:
        path = service_path(service, f"/keys/{quote(name)}")
        if options.on("plan"):
            existing = [key["name"] for key in session.fetch(service_path(service, "/keys"))["keys"]]
            listing = ", ".join(existing) or f"`fairway key list {service}` lists them"
            outcome = "would be revoked" if name in existing else f"is not one of its keys ({listing})"
            say(f"{service}: {name} {outcome}; nothing was changed (--plan)")
            continue
        session.announce()
        session.send("DELETE", path)
        say(f"the key {name} of {service} is revoked: requests with it are refused from now on")
    return 0


COMMANDS = {
    "create": CliCommand(
        "key create",
        "Create an API key for a service and print it once; only its hash is stored.",
        create,
        words=(_SERVICE,),
        flags=(
            CommandFlag("--name", "the name of the key in lists and logs", "NAME"),
            CommandFlag("--rate", "rate limit of the key: 100/s, 60/m (default: no limit)", "RATE"),
            CommandFlag("--expires", "lifetime of the key: 30d (default: until it is revoked)", "TIME"),
            PLAN,
            FORMAT,
        ),
        examples=("fairway key create mnist --name ci --rate 100/s --expires 30d",),
    ),
    "list": CliCommand("key list", "List the API keys of a service by name.", list_keys, words=(_SERVICE,), flags=(FORMAT,)),
    "revoke": CliCommand(
        "key revoke",
        "Revoke API keys. Requests with them are refused as soon as this command returns.",
        revoke,
        words=(_SERVICE, PositionalArgument("NAME", "a key", many=True)),
        flags=(PLAN,),
    ),
}
