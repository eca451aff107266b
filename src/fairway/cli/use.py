"""`fairway use`: where commands act from now on."""

from __future__ import annotations

import os

from fairway.cli import contexts
from fairway.cli.grammar import FORMAT, Command, Options, Word
from fairway.cli.session import say, show_line, write_json
from fairway.errors import FairwayError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def use(options: Options) -> int:
    """Choose a context, or show which there are."""
    if not options.word():
        return _show(options)
    name = options.word()
    if name == contexts.LOCAL:
        contexts.remember(name)
        say("on local: commands act on this machine")
        return 0
    from fairway.sdk.cluster import Cluster

    context, kubeconfig = contexts.find(name)
    if os.sep in name and not kubeconfig:
        message = f"there is no kubeconfig {name}"
        raise UsageError(message, fix="name a file that is there, or a context; `fairway use` lists them")
    cluster = Cluster(context, kubeconfig)
    found = cluster.target
    contexts.remember(found.context, kubeconfig)
    say(f"on {found.context} / {found.namespace}: commands act on {found.server}; `fairway use local` goes back")
    try:
        cluster.request("GET", "/v1/health", {"namespace": found.namespace}).read()
    except FairwayError as error:
        say(f"warning: {error}")
    return 0


def _show(options: Options) -> int:
    current, kubeconfig = contexts.find(options.text("context") or os.environ.get("FAIRWAY_CONTEXT", ""))
    found = [{"name": contexts.LOCAL, "server": "this machine", "namespace": "", "current": current == contexts.LOCAL}]
    found += [{**one, "current": one["name"] == current} for one in _listed(kubeconfig) if one["name"] != contexts.LOCAL]
    known = any(one["current"] for one in found)
    if not known:
        found.append({"name": current, "server": "not in the kubeconfig any more", "namespace": "", "current": True})
    if options.text("format") == "json":
        write_json({"contexts": found})
        return 0
    width = max(len(str(one["name"])) for one in found)
    for one in found:
        if options.text("format") == "name":
            show_line(str(one["name"]))
        else:
            show_line(f"{'*' if one['current'] else ' '} {one['name']:{width}}  {one['server']}  {one['namespace']}".rstrip())
    return 0


def _listed(kubeconfig: str) -> list[dict[str, Any]]:
    """The contexts of the kubeconfig that kubectl would read; what cannot be read is told, and none are listed."""
    from pathlib import Path

    from fairway.engines.kubernetes.client import config

    named = kubeconfig or os.environ.get("KUBECONFIG", "") or os.path.expanduser("~/.kube/config")
    files = [Path(part).expanduser() for part in named.split(":") if part and Path(part).expanduser().exists()]
    if not files:
        return []
    read = config.read_kubeconfig(*files)
    found: list[dict[str, Any]] = []
    for name in sorted(read.contexts):
        try:
            target = read.target(name)
            found.append({"name": name, "server": target.server, "namespace": target.namespace})
        except FairwayError as error:
            found.append({"name": name, "server": f"cannot be used: {error.message}", "namespace": ""})
    return found


COMMANDS = {
    "": Command(
        "use",
        "Choose where commands act: this machine (local), or a cluster by a context of the kubeconfig. "
        "Without a name, list them; the current one has a star. For one command alone there is --context.",
        use,
        words=(Word("CONTEXT", "local, a context of the kubeconfig, or a kubeconfig file", optional=True),),
        flags=(FORMAT,),
        examples=("fairway use", "fairway use prod-a100", "fairway use ./team.kubeconfig", "fairway use local"),
    )
}
