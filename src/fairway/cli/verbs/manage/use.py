"""`fairway use`: choose the context in which commands act."""

from __future__ import annotations

import os

from fairway.cli import context as cli_context
from fairway.cli.argument_parser import FORMAT, CliCommand, CommandOptions, PositionalArgument
from fairway.cli.session import say, show_line, write_json
from fairway.errors import FairwayError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def use(options: CommandOptions) -> int:
    """Choose a context, or list the contexts."""
    if not options.word():
        return _show(options)
    name = options.word()
    if name == cli_context.LOCAL:
        cli_context.remember(name)
        say("on local: commands act on this machine")
        return 0
    from fairway.sdk.transport.cluster import ClusterConnection

    context, kubeconfig = cli_context.find(name)
    if os.sep in name and not kubeconfig:
        message = f"there is no kubeconfig {name}"
        raise UsageError(message, fix="name an existing file or a context; `fairway use` lists the contexts")
    cluster = ClusterConnection(context, kubeconfig)
    target = cluster.target
    cli_context.remember(target.context, kubeconfig)
    say(f"on {target.context} / {target.namespace}: commands act on {target.server}; `fairway use local` goes back")
    try:
        cluster.request("GET", "/v1/health", {"namespace": target.namespace}).read()
    except FairwayError as error:
        say(f"warning: {error}")
    return 0


def _show(options: CommandOptions) -> int:
    current, kubeconfig = cli_context.find(options.text("context") or os.environ.get("FAIRWAY_CONTEXT", ""))
    rows = [{"name": cli_context.LOCAL, "server": "this machine", "namespace": "", "current": current == cli_context.LOCAL}]
    rows += [{**row, "current": row["name"] == current} for row in _listed(kubeconfig) if row["name"] != cli_context.LOCAL]
    has_current = any(row["current"] for row in rows)
    if not has_current:
        rows.append({"name": current, "server": "not in the kubeconfig any more", "namespace": "", "current": True})
    if options.text("format") == "json":
        write_json({"contexts": rows})
        return 0
    width = max(len(str(row["name"])) for row in rows)
    for row in rows:
        if options.text("format") == "name":
            show_line(str(row["name"]))
        else:
            show_line(f"{'*' if row['current'] else ' '} {row['name']:{width}}  {row['server']}  {row['namespace']}".rstrip())
    return 0


def _listed(kubeconfig: str) -> list[dict[str, Any]]:
    """Return the contexts of the kubeconfig that kubectl would read; an unusable context is listed with its error."""
    from pathlib import Path

    from fairway.engines.kubernetes.client import kubeconfig as client_kubeconfig

    paths = kubeconfig or os.environ.get("KUBECONFIG", "") or os.path.expanduser("~/.kube/config")
    files = [Path(part).expanduser() for part in paths.split(":") if part and Path(part).expanduser().exists()]
    if not files:
        return []
    kubeconfigs = client_kubeconfig.read_kubeconfig(*files)
    rows: list[dict[str, Any]] = []
    for name in sorted(kubeconfigs.contexts):
        try:
            target = kubeconfigs.target(name)
            rows.append({"name": name, "server": target.server, "namespace": target.namespace})
        except FairwayError as error:
            rows.append({"name": name, "server": f"cannot be used: {error.message}", "namespace": ""})
    return rows


COMMANDS = {
    "": CliCommand(
        "use",
        "Choose where commands act: this machine (local), or a cluster by a context of the kubeconfig. "
        "Without a name, list them; the current one has a star. To choose for a single command, use --context.",
        use,
        words=(PositionalArgument("CONTEXT", "local, a context of the kubeconfig, or a kubeconfig file", optional=True),),
        flags=(FORMAT,),
        examples=("fairway use", "fairway use prod-a100", "fairway use ./team.kubeconfig", "fairway use local"),
    )
}
