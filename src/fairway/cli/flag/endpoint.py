"""Flags for the endpoint of a service, and creation of the API key that `--key` names."""

from __future__ import annotations

import os

from fairway.cli.address import service_path
from fairway.cli.argument_parser import CommandFlag, CommandOptions
from fairway.cli.session import CommandSession, say
from fairway.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ENDPOINT = (
    CommandFlag("--bind", "the address to listen on (default: 127.0.0.1; all addresses: 0.0.0.0)", "ADDRESS"),
    CommandFlag("--tls", "use TLS: self-signed, or the files of a certificate and its key", "self-signed|CERT,KEY"),
    CommandFlag("--key", "require API keys, and create one with this name", "NAME"),
    CommandFlag("--public", "allow access from other machines without API keys"),
    CommandFlag("--host", "a host name that clients may use, besides localhost; may be given again", "NAME", many=True),
    CommandFlag("--cors", "an origin whose pages may read replies; may be given again", "ORIGIN", many=True),
)


def endpoint_of(options: CommandOptions) -> dict[str, Any]:
    """Return the field `endpoint` of a document from the flags; empty if no flag sets it."""
    endpoint: dict[str, Any] = {}
    if options.text("bind"):
        endpoint["bind"] = options.text("bind")
    if options.text("key"):
        endpoint["keys"] = "required"
    if options.on("public"):
        endpoint["public"] = True
    if options.text("tls"):
        certificate, mark, key = options.text("tls").partition(",")
        if not mark and certificate != "self-signed":
            message = f"--tls {certificate}: expected `self-signed`, or the files of a certificate and its key"
            raise UsageError(message, fix="write --tls self-signed, or --tls server.pem,server.key")
        files = {"certificate": os.path.abspath(certificate), "key": os.path.abspath(key)}
        endpoint["tls"] = files if mark else {"mode": "self-signed"}
    if options.many("host"):
        endpoint["hosts"] = options.many("host")
    if options.many("cors"):
        endpoint["cors"] = {"origins": options.many("cors")}
    return {"endpoint": endpoint} if endpoint else {}


def make_key(session: CommandSession, name: str, key: str) -> None:
    """Create the API key that --key names, unless the service already has it."""
    path = service_path(name, "/keys")
    if any(existing["name"] == key for existing in session.fetch(path)["keys"]):
        say(
            f"{name} already has the key {key}; it was shown when it was created (another: fairway key create {name} --name NAME)"
        )
        return
    created = session.send("POST", path, {"name": key})
    say(f"the key {key} of {name}, shown only this once:")
    say(f"export FAIRWAY_KEY={created['key']}")
