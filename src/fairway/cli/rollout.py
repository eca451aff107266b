"""`fairway rollout`: releases of a service."""

from __future__ import annotations

from fairway.cli.address import service_path
from fairway.cli.grammar import FORMAT, PLAN, Command, Flag, Options, Word
from fairway.cli.session import Session, say, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ALLOW_SIGNATURE_CHANGE = Flag(
    "--allow-signature-change", "release it even if its inputs or outputs are incompatible with clients of the current version"
)
_NAME = Word("NAME", "a service: mnist or service/mnist")


def start(options: Options) -> int:
    """Start a release of another version of the model."""
    session = Session(options)
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


def status(options: Options) -> int:
    """Print the state of the current release."""
    Session(options).show(service_path(options.word(), "/rollout"))
    return 0


def history(options: Options) -> int:
    """Print past and current releases."""
    Session(options).show(service_path(options.word(), "/rollout/history"))
    return 0


def _changing(verb: str) -> Callable[[Options], int]:
    def act(options: Options) -> int:
        session = Session(options)
        if not options.on("plan"):
            session.announce()
        body = {"plan": options.on("plan")}
        write(session.change("POST", service_path(options.word(), f"/rollout/{verb}"), body, session.look()))
        if options.on("plan"):
            say("nothing was changed (--plan)")
        return 0

    return act


COMMANDS = {
    "start": Command(
        "rollout start",
        "Release another version of the model, with the strategy in the service's document.",
        start,
        words=(_NAME, Word("MODEL", "the version: mnist@8")),
        flags=(
            Flag(
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
    "status": Command(
        "rollout status", "Show the state of the release and the findings of its guards.", status, words=(_NAME,), flags=(FORMAT,)
    ),
    "pause": Command(
        "rollout pause", "Pause the release at its current step.", _changing("pause"), words=(_NAME,), flags=(PLAN, FORMAT)
    ),
    "resume": Command("rollout resume", "Continue a paused release.", _changing("resume"), words=(_NAME,), flags=(PLAN, FORMAT)),
    "undo": Command("rollout undo", "Go back to the previous version.", _changing("undo"), words=(_NAME,), flags=(PLAN, FORMAT)),
    "history": Command(
        "rollout history",
        "List the releases: when they ran, between which versions, and how they ended.",
        history,
        words=(_NAME,),
        flags=(FORMAT,),
    ),
}
