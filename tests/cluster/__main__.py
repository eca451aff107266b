"""`python -m cluster build|up|down`: what `make cluster-programs`, `make cluster` and `make cluster-down` run."""

from __future__ import annotations

import argparse
import sys

from cluster import folders, image, kwok, node, programs
from cluster.control_plane import ControlPlane
from cluster.nodes import RealCluster, remove
from cluster.process import StartError


def build(options: argparse.Namespace) -> None:
    """Build the missing binaries, those of the control plane first."""
    for group in programs.GROUPS:
        if group.name in options.groups or not (options.groups or group.asked):
            say(f"{group.name}: {', '.join(group.packages)}")
            programs.build(group.name)


def up(options: argparse.Namespace) -> None:
    """Start a cluster that keeps running."""
    if folders.staying():
        raise StartError(f"a cluster runs already, in {folders.staying()[0]}: end it with `make cluster-down` first")
    reason = "" if options.real else node.missing()
    plane = _up_pretended(options, reason) if options.pretended or reason else _up_real(options)
    say(f"Kubernetes {programs.kubernetes_version()} at {plane.server}. Use it with:")
    say(f"  export KUBECONFIG={plane.kubeconfig()} PATH={programs.find('kubectl').parent}:$PATH")
    say("  kubectl get nodes")
    say("`make cluster-down` ends it.")


def _up_real(options: argparse.Namespace) -> ControlPlane:
    programs.build("control-plane", "nodes", "names")
    cluster = RealCluster(options.nodes, outlive=True)
    cluster.start()
    cluster.plane.start_scheduler()
    cluster.load(image.fairway(cluster.plane.folder / "fairway.tar", ["kubernetes"]))
    say(f"{options.nodes} real nodes with the image {image.FAIRWAY}")
    return cluster.plane


def _up_pretended(options: argparse.Namespace, reason: str) -> ControlPlane:
    programs.build("control-plane", "nodes")
    plane = ControlPlane(outlive=True)
    plane.start()
    plane.start_scheduler()
    kwok.add_nodes(plane, options.nodes)
    say(f"{options.nodes} pretended nodes{', because ' if reason else ''}{reason}")
    return plane


def down(options: argparse.Namespace) -> None:
    """Stop the clusters that `up` started and those left behind by a crash; clusters owned by a running test are kept."""
    for folder in folders.known():
        if folders.is_owned(folder):
            say(f"{folder} belongs to a test that runs: left alone")
            continue
        remove(folder)
        say(f"{folder} is gone")


def say(text: str) -> None:
    """Print a message at the terminal."""
    print(text, file=sys.stderr)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="cluster", description=__doc__)
    verbs = parser.add_subparsers(required=True)
    building = verbs.add_parser("build", help=build.__doc__)
    building.add_argument("groups", nargs="*", help="; ".join(group.name for group in programs.GROUPS))
    building.set_defaults(act=build)
    starting = verbs.add_parser("up", help=up.__doc__)
    starting.add_argument("--nodes", type=int, default=2, help="how many")
    kinds = starting.add_mutually_exclusive_group()
    kinds.add_argument("--real", action="store_true", help="real nodes, or fail")
    kinds.add_argument("--pretended", action="store_true", help="kwok's nodes, even where real ones could be")
    starting.set_defaults(act=up)
    verbs.add_parser("down", help=down.__doc__).set_defaults(act=down)
    options = parser.parse_args()
    try:
        options.act(options)
    except (programs.ProgramsMissingError, StartError) as failed:
        say(str(failed))
        return 1
    return 0


sys.exit(main())
