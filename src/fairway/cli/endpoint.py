"""Flags about how a service is reached from outside, and the API key that one of them makes."""

from __future__ import annotations

import os

from fairway.cli.address import service_path
from fairway.cli.grammar import Flag, Options
from fairway.cli.session import Session, say
from fairway.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ENDPOINT = (
    Flag("--bind", "the address where it listens (default: 127.0.0.1; all addresses: 0.0.0.0)", "ADDRESS"),
    Flag("--tls", "speak TLS: self-signed, or the files of a certificate and its key", "self-signed|CERT,KEY"),
    Flag("--key", "ask for API keys, and make one of this name", "NAME"),
    Flag("--public", "listen beyond this machine without API keys"),
    Flag("--host", "a name by which it may be asked, beside localhost; may be given again", "NAME", many=True),
    Flag("--cors", "an origin whose pages may read answers; may be given again", "ORIGIN", many=True),
)


def endpoint_of(options: Options) -> dict[str, Any]:
    """The field `endpoint` of a document, where a flag says something of it."""
    found: dict[str, Any] = {}
    if options.text("bind"):
        found["bind"] = options.text("bind")
    if options.text("key"):
        found["keys"] = "required"
    if options.on("public"):
        found["public"] = True
    if options.text("tls"):
        certificate, mark, key = options.text("tls").partition(",")
        if not mark and certificate != "self-signed":
            message = f"--tls {certificate}: `self-signed`, or the files of a certificate and its key are needed"
            raise UsageError(message, fix="write --tls self-signed, or --tls server.pem,server.key")
        files = {"certificate": os.path.abspath(certificate), "key": os.path.abspath(key)}
        found["tls"] = files if mark else {"mode": "self-signed"}
    if options.many("host"):
        found["hosts"] = options.many("host")
    if options.many("cors"):
        found["cors"] = {"origins": options.many("cors")}
    return {"endpoint": found} if found else {}


def make_key(session: Session, name: str, key: str) -> None:
    """Make the API key that --key names, unless the service has it: then it was shown before."""
    path = service_path(name, "/keys")
    if any(known["name"] == key for known in session.fetch(path)["keys"]):
        say(f"{name} has the key {key} already; it was shown when it was made (another: fairway key create {name} --name NAME)")
        return
    made = session.send("POST", path, {"name": key})
    say(f"the key {key} of {name}, shown this once:")
    say(f"export FAIRWAY_KEY={made['key']}")
