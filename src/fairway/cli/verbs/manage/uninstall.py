"""`fairway uninstall`: remove Fairway from a cluster."""

from __future__ import annotations

from fairway.cli.argument_parser import PLAN, CliCommand, CommandFlag, CommandOptions
from fairway.cli.session import say
from fairway.cli.verbs.manage.install import FLAGS, installation, on_cluster

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fairway.engines.kubernetes.client.api import ApiClient


def kubernetes(options: CommandOptions) -> int:
    """Remove processes, accounts and roles; with --all also the custom resource definitions with all their objects."""
    from fairway.engines.kubernetes.install.installer import KEPT, called
    from fairway.engines.kubernetes.install.manifest import everything

    # Removal needs only the names of objects, which do not depend on other settings.
    objects, remove_everything = everything(installation(options, required=False)), options.on("all")
    if options.on("plan"):
        for item in reversed([item for item in objects if remove_everything or item["kind"] not in KEPT]):
            say(f"{called(item)} would be deleted, if it exists")
        say("nothing was changed (--plan)")
        return 0

    async def remove(client: ApiClient) -> None:
        from fairway.engines.kubernetes.install.installer import remove_all

        await remove_all(client, objects, say, whole=remove_everything)

    on_cluster(options, remove)
    kept_notice = "the objects of all users, their definitions and the operator's record are kept (--all deletes them too)"
    say("done" if remove_everything else f"done; {kept_notice}")
    return 0


COMMANDS = {
    "kubernetes": CliCommand(
        "uninstall kubernetes",
        "Remove Fairway from the cluster that kubectl uses. Running jobs are no longer managed.",
        kubernetes,
        flags=(
            *(flag for flag in FLAGS if flag.key in ("settings", "system-namespace")),
            CommandFlag(
                "--all",
                "also delete the definitions with every TrainingJob, ModelService and JobQueue, the record, and the namespace",
            ),
            PLAN,
        ),
        examples=("fairway uninstall kubernetes --plan",),
    )
}
