"""`fairway install`: install Fairway on a cluster."""

from __future__ import annotations

import os

from fairway.cli.argument_parser import PLAN, CliCommand, CommandFlag, CommandOptions, PositionalArgument
from fairway.cli.session import say, write
from fairway.errors import FairwayError, NotFoundError, UnavailableError, UsageError
from fairway.units import quantity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from fairway.engines.kubernetes.client.api import ApiClient
    from fairway.engines.kubernetes.install.discovering import ClusterFindings
    from fairway.engines.kubernetes.operator.installation import InstallationSettings

TIMEOUT = "2m"


def kubernetes(options: CommandOptions) -> int:
    """Apply definitions, accounts, roles, operator and scheduler; or print them, or write them as a Helm chart."""
    if options.text("to") or options.word():
        return _write_chart(options)
    limit = _limit(options)
    settings = _chosen(options)
    objects = manifests(settings)
    if options.on("plan"):
        write(_printed(objects, options.text("format", "yaml")))
        say(f"{len(objects)} objects; nothing was changed (--plan). kubectl can apply them as they are.")
        return 0

    async def apply(client: ApiClient) -> None:
        from fairway.engines.kubernetes.install.installer import apply_all
        from fairway.engines.kubernetes.install.manifest import everything
        from fairway.engines.kubernetes.install.readiness import wait_until_up

        await apply_all(client, objects, say, everything(settings))
        if limit:
            await wait_until_up(client, objects, say, limit)

    context = on_cluster(options, apply, told=True)
    state = "everything is up" if limit else "everything is applied, but not waited for (--timeout 0)"
    hint = (
        f"`fairway use {context}` selects this cluster for commands"
        if context
        else "`fairway use` lists the contexts that commands can use"
    )
    say(f"done: {state}; `kubectl -n {settings.namespace} get pods` shows the processes, {hint}")
    return 0


def _limit(options: CommandOptions) -> float:
    """Return how long to wait until all pods are up, in seconds."""
    text = options.text("timeout", TIMEOUT)
    try:
        return quantity.seconds(text)
    except ValueError as error:
        message = f"--timeout {text} {error}"
        raise UsageError(message, fix="write for example --timeout 5m; 0 does not wait") from None


def manifests(chosen: InstallationSettings) -> list[dict[str, Any]]:
    """Return all objects of an installation."""
    from fairway.engines.kubernetes.install import manifest as made

    return made.manifests(chosen)


def _write_chart(options: CommandOptions) -> int:
    """Write the same objects as a Helm chart, with the settings as its values (`--to helm DIR`)."""
    from pathlib import Path

    from fairway.engines.kubernetes.install.helm_chart import chart

    if not options.text("to") or not options.word():
        message = "a chart is written with --to helm, into a folder"
        raise UsageError(message, fix="fairway install kubernetes --to helm DIR")
    folder = Path(options.word())
    files = chart(installation(options, required=False))
    if not options.on("plan"):
        for file, text in files.items():
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    say(f"{folder}: {len(files)} files{'; nothing was changed (--plan)' if options.on('plan') else ''}")
    say(f"helm install fairway {folder} --namespace fairway-system --create-namespace --set image=IMAGE")
    return 0


def _chosen(options: CommandOptions) -> InstallationSettings:
    """Return the installation; settings that are not given are chosen by what the cluster has."""
    from fairway.engines.kubernetes.install.default_setting import choose

    settings = installation(options)
    given_fields = _given(options)
    ground = _ground(options)
    complete_settings, lines = choose(settings, given_fields, ground)
    for line in lines:
        say(line)
    return complete_settings


def _ground(options: CommandOptions) -> ClusterFindings | None:
    """Return what the cluster has; None if it cannot be reached, which is allowed only with --plan."""
    from fairway.engines.kubernetes.install.discovering import discover

    results: list[ClusterFindings] = []

    async def look(client: ApiClient) -> None:
        results.append(await discover(client))

    try:
        on_cluster(options, look)
    except (UnavailableError, UsageError, NotFoundError) as error:
        if not options.on("plan"):
            raise
        say(f"the cluster could not be inspected: {error.message}")
    return results[0] if results else None


def _given(options: CommandOptions, *, required: bool = True) -> dict[str, Any]:
    """Return the settings of the administrator's file, overridden by the flags."""
    from fairway.engines.kubernetes.install import settings_file

    path, image = options.text("settings"), options.text("image")
    settings = settings_file.read(_text(path), path, image=image, required=required) if path else {}
    for key in ("image", "system-namespace", "scheduler"):
        if options.text(key):
            settings["namespace" if key == "system-namespace" else key] = options.text(key)
    if settings.get("scheduler") == "cluster":
        settings["scheduler"] = ""
    return settings


def installation(options: CommandOptions, *, required: bool = True) -> InstallationSettings:
    """Return the checked settings. Unless `required`, the image may be missing."""
    import msgspec

    from fairway.engines.kubernetes.operator.installation import InstallationSettings

    settings = {"image": "", **_given(options, required=required)}
    if required and not settings["image"]:
        message = "no image is given for the operator and the scheduler"
        raise UsageError(message, fix="fairway install kubernetes --image REGISTRY/fairway:VERSION")
    return msgspec.convert(settings, InstallationSettings)


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        message = f"{path}: {error.strerror}"
        raise UsageError(message, fix="name an existing YAML or JSON file") from None
    except UnicodeDecodeError:
        message = f"{path}: not a text file"
        raise UsageError(message, fix="save it as UTF-8") from None


def on_cluster(options: CommandOptions, work: Callable[[ApiClient], Awaitable[None]], *, told: bool = False) -> str:
    """Run `work` on the cluster with the caller's rights; return the context's name.

    Prints which cluster that is, unless `told`.
    """
    import asyncio

    from fairway.cli.cluster.pod import EXTRA

    try:
        from fairway.engines.kubernetes.client import api, kubeconfig
    except ImportError as error:
        message = f"{error.name} is not installed, and commands on a cluster need it"
        raise FairwayError(message, fix=EXTRA) from None
    from fairway.app.system.clock import SystemClock

    target = kubeconfig.find(os.environ, context=options.text("context"))
    if not told:
        say(f"on {target.context or 'the cluster'} at {target.server}")

    async def act() -> None:
        async with api.connect(target, SystemClock()) as client:
            await work(client)

    asyncio.run(act())
    return target.context


def _printed(found: list[dict[str, Any]], how: str) -> bytes:
    """Return the objects as a stream of YAML documents, as a JSON list for kubectl, or by name."""
    import json

    import yaml

    if how == "name":
        from fairway.engines.kubernetes.install.installer import called

        return "".join(f"{called(item)}\n" for item in found).encode()
    if how == "json":
        return (json.dumps({"apiVersion": "v1", "kind": "List", "items": found}, indent=2) + "\n").encode()
    return yaml.safe_dump_all(found, sort_keys=False, width=130, allow_unicode=True).encode()


FLAGS = (
    CommandFlag("--settings -f", "a YAML file: image, runtimes, run_volume, allowed ... (docs/kubernetes.md)", "FILE"),
    CommandFlag(
        "--image", "Fairway's own image, for operator, scheduler and the init container that copies code into pods", "IMAGE"
    ),
    CommandFlag(
        "--scheduler",
        "which scheduler places pods (default: fairway; the cluster's own if Kueue, Volcano or KAI is found)",
        "NAME",
        choices=("fairway", "cluster"),
    ),
    CommandFlag("--system-namespace", "the namespace of operator and scheduler (default: fairway-system)", "NAME"),
    PLAN,
)

COMMANDS = {
    "kubernetes": CliCommand(
        "install kubernetes",
        "Install Fairway on the cluster that kubectl uses: definitions, service accounts with roles, operator and scheduler.",
        kubernetes,
        words=(PositionalArgument("DIR", "where --to helm writes the chart", optional=True),),
        flags=(
            *FLAGS,
            CommandFlag("--timeout", f"how long to wait until everything is up (default: {TIMEOUT}; 0: do not wait)", "TIME"),
            CommandFlag("--to", "write a chart into DIR instead", "FORM", choices=("helm",)),
            CommandFlag("--format -o", "output format of --plan: yaml, json, name", "FORMAT", choices=("yaml", "json", "name")),
        ),
        examples=(
            "fairway install kubernetes --image registry/fairway:1 --plan -o yaml > fairway.yaml",
            "fairway install kubernetes --to helm chart",
            "fairway install kubernetes -f installation.yaml",
        ),
    )
}
