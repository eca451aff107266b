"""`fairway rollout`: releases of a service."""

from __future__ import annotations

from fairway.cli.address import service_path
from fairway.cli.argument_parser import FORMAT, PLAN, CliCommand, CommandFlag, CommandOptions, PositionalArgument
from fairway.cli.session import CommandSession, say, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ALLOW_SIGNATURE_CHANGE = CommandFlag(
    "--allow-signature-change", "release it even if its inputs or outputs are incompatible with clients of the current version"
)
_NAME = PositionalArgument("NAME", "a service: mnist or service/mnist")


def start(options: CommandOptions) -> int:
    """Start a release of another version of the model."""
    session = CommandSession(options)
    address, model = options.words
    body: dict[str, Any] = {"model": model, "strategy": options.text("strategy"), "plan": options.on("plan")}
    if options.on("allow-signature-change"):
        body["allow_signature_change"] = True
    if not options.on("plan"):
        session.announce()
    write(session.change("POST", service_path(address, "/rollout/start"), body, session.look()))
    if options.on("plan"):
        say("nothing was changed (--plan)")
    return 0


def status(options: CommandOptions) -> int:
    """Print the state of the current release."""
    CommandSession(options).show(service_path(options.word(), "/rollout"))
    return 0


def history(options: CommandOptions) -> int:
    """Print past and current releases."""
    CommandSession(options).show(service_path(options.word(), "/rollout/history"))
    return 0


def _changing(verb: str) -> Callable[[CommandOptions], int]:
    def act(options: CommandOptions) -> int:
        session = CommandSession(options)
        if not options.on("plan"):
            session.announce()
        body = {"plan": options.on("plan")}
        write(session.change("POST", service_path(options.word(), f"/rollout/{verb}"), body, session.look()))
        if options.on("plan"):
            say("nothing was changed (--plan)")
        return 0

    return act


COMMANDS = {
    "start": CliCommand(
        "rollout start",
        "Release another version of the model, with the strategy in the service's document.",
        start,
        words=(_NAME, PositionalArgument("MODEL", "the version: mnist@8")),
        flags=(
            CommandFlag(
                "--strategy",
                "for this release and later ones: rolling, blue-green, canary, ab, shadow",
                "NAME",
                choices=("rolling", "blue-green", "canary", "ab", "shadow"),
            ),
            ALLOW_SIGNATURE_CHANGE,
            PLAN,
            FORMAT,
        ),
        examples=("fairway rollout start mnist mnist@8", "fairway rollout start mnist mnist@champion --strategy canary"),
    ),
    "status": CliCommand(
        "rollout status", "Show the state of the release and the findings of its guards.", status, words=(_NAME,), flags=(FORMAT,)
    ),
    "pause": CliCommand(
        "rollout pause", "Pause the release at its current step.", _changing("pause"), words=(_NAME,), flags=(PLAN, FORMAT)
    ),
    "resume": CliCommand(
        "rollout resume", "Continue a paused release.", _changing("resume"), words=(_NAME,), flags=(PLAN, FORMAT)
    ),
    "undo": CliCommand(
        "rollout undo", "Go back to the previous version.", _changing("undo"), words=(_NAME,), flags=(PLAN, FORMAT)
    ),
    "history": CliCommand(
        "rollout history",
        "List the releases: when they ran, between which versions, and how they ended.",
        history,
        words=(_NAME,),
        flags=(FORMAT,),
    ),
}
