"""`fairway uninstall`: from a cluster."""

from __future__ import annotations

from fairway.cli.grammar import PLAN, Command, Flag, Options
from fairway.cli.install import FLAGS, manifests, on_cluster
from fairway.cli.session import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fairway.engines.kubernetes.client.api import Client


def kubernetes(options: Options) -> int:
    """Take the processes, accounts and roles away; with --all also the kinds, and everybody's objects of them."""
    # What is taken away has a name, whatever its image was.
    found, whole = manifests(options, image="any"), options.on("all")
    if options.on("plan"):
        kept = ("Namespace",) if whole else ("Namespace", "CustomResourceDefinition")
        for one in reversed([one for one in found if one["kind"] not in kept]):
            say(f"{one['kind']} {one['metadata']['name']} would go")
        say("nothing was changed (--plan)")
        return 0

    async def remove(client: Client) -> None:
        from fairway.engines.kubernetes.install.applying import remove_all

        await remove_all(client, found, say, definitions=whole)

    on_cluster(options, remove)
    say("done" if whole else "done; everybody's objects and their kinds are still there (--all takes them away too)")
    return 0


COMMANDS = {
    "kubernetes": Command(
        "uninstall kubernetes",
        "Take Fairway off the cluster that kubectl talks to. Jobs that run lose whoever looks after them.",
        kubernetes,
        flags=(
            *(flag for flag in FLAGS if flag.key in ("settings", "scheduler", "system-namespace")),
            Flag("--all", "also our kinds, and with them every TrainingJob, ModelService and JobQueue"),
            PLAN,
        ),
        examples=("fairway uninstall kubernetes --plan",),
    )
}
