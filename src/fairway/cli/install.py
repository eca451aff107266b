"""`fairway install`: onto a cluster."""

from __future__ import annotations

import os

from fairway.cli.grammar import PLAN, Command, Flag, Options
from fairway.cli.session import say, write
from fairway.errors import FairwayError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from fairway.engines.kubernetes.client.api import Client
    from fairway.engines.kubernetes.operator.installation import Installation

EXTRA = "pip install 'fairway[kubernetes]'"


def kubernetes(options: Options) -> int:
    """Apply definitions, accounts, roles, operator and scheduler; or print them."""
    found = manifests(options)
    if options.on("plan"):
        write(as_yaml(found))
        say(f"{len(found)} objects; nothing was changed (--plan). They can be applied by kubectl as they are.")
        return 0

    async def apply(client: Client) -> None:
        from fairway.engines.kubernetes.install.applying import apply_all

        await apply_all(client, found, say)

    on_cluster(options, apply)
    namespace = found[0]["metadata"]["name"]
    say(f"done; `kubectl -n {namespace} get pods` shows the processes, `kubectl get trainingjobs -A` everybody's jobs")
    return 0


def manifests(options: Options, image: str = "") -> list[dict[str, Any]]:
    """Everything that belongs to the installation that the flags and the file describe."""
    from fairway.engines.kubernetes.install import manifests as made

    return made.manifests(installation(options, image))


def installation(options: Options, image: str = "") -> Installation:
    """What the administrator's file says, and the flags over it. `image`: where neither names one."""
    import msgspec

    from fairway.engines.kubernetes.operator.installation import Installation

    given: dict[str, Any] = _read(options.text("settings")) if options.text("settings") else {}
    for key in ("image", "system-namespace"):
        if options.text(key):
            given["namespace" if key == "system-namespace" else key] = options.text(key)
    if options.text("scheduler"):
        given["scheduler"] = "fairway" if options.text("scheduler") == "fairway" else ""
    given.setdefault("image", image)
    if not given["image"]:
        message = "no image is named for operator and scheduler"
        raise UsageError(message, fix="fairway install kubernetes --image REGISTRY/fairway:VERSION")
    try:
        return msgspec.convert(given, Installation)
    except msgspec.ValidationError as error:
        message = f"{options.text('settings') or 'the flags'}: {error}"
        raise UsageError(message, fix="see docs/kubernetes.md for what may stand there") from None


def _read(path: str) -> dict[str, Any]:
    import yaml

    try:
        with open(path, encoding="utf-8") as file:
            found = yaml.safe_load(file)
    except OSError as error:
        message = f"{path}: {error.strerror}"
        raise UsageError(message, fix="name a YAML or JSON file that is there") from None
    except yaml.YAMLError as error:
        message = f"{path}: {error}"
        raise UsageError(message, fix="mend the YAML") from None
    if not isinstance(found, dict):
        message = f"{path}: holds no settings"
        raise UsageError(message, fix="write a mapping, for example `image: registry/fairway:1`")
    return found


def on_cluster(options: Options, work: Callable[[Client], Awaitable[None]]) -> None:
    """Do it with the rights that the caller has there."""
    import asyncio

    try:
        from fairway.engines.kubernetes.client import api, config
    except ImportError as error:
        message = f"{error.name} is not installed, which speaks to clusters"
        raise FairwayError(message, fix=EXTRA) from None
    from fairway.app.system import SystemClock

    target = config.find(os.environ, context=options.text("context"))
    say(f"on {target.context or 'the cluster'} at {target.server}")

    async def act() -> None:
        async with api.connect(target, SystemClock()) as client:
            await work(client)

    asyncio.run(act())


def as_yaml(found: list[dict[str, Any]]) -> bytes:
    """The objects as one stream of documents."""
    import yaml

    return yaml.safe_dump_all(found, sort_keys=False, width=130, allow_unicode=True).encode()


FLAGS = (
    Flag("--settings -f", "a YAML file: image, runtimes, run_volume, allowed ... (docs/kubernetes.md)", "FILE"),
    Flag("--image", "Fairway's own image, for operator, scheduler and the step that brings code into pods", "IMAGE"),
    Flag("--scheduler", "who places pods (default: fairway)", "NAME", choices=("fairway", "cluster")),
    Flag("--system-namespace", "where operator and scheduler run (default: fairway-system)", "NAME"),
    PLAN,
)

COMMANDS = {
    "kubernetes": Command(
        "install kubernetes",
        "Install on the cluster that kubectl talks to: definitions, accounts with their roles, operator and scheduler.",
        kubernetes,
        flags=FLAGS,
        examples=(
            "fairway install kubernetes --image registry/fairway:1 --plan > fairway.yaml",
            "fairway install kubernetes -f installation.yaml",
        ),
    )
}
