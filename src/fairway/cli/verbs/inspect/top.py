"""`fairway top`: use of nodes, jobs and services."""

from __future__ import annotations

from fairway.cli.address import job_name, service_path
from fairway.cli.argument_parser import FORMAT, CliCommand, CommandOptions, PositionalArgument
from fairway.cli.session import CommandSession
from fairway.cli.terminal.watch import WATCH, show
from fairway.sdk.transport.http import quote


def top(options: CommandOptions) -> int:
    """Print the nodes, and below them the running jobs."""
    return show(CommandSession(options), ["/v1/nodes", "/v1/top/jobs"], merged=True)


def top_node(options: CommandOptions) -> int:
    """Print nodes with their total, used and free capacity, device by device."""
    name = options.word()
    return show(CommandSession(options), [f"/v1/nodes/{quote(name)}" if name else "/v1/nodes"])


def top_job(options: CommandOptions) -> int:
    """Print running jobs, or the tasks of one job, with the use of their allocated resources."""
    name = options.word()
    return show(CommandSession(options), [f"/v1/top/jobs/{quote(job_name(name))}" if name else "/v1/top/jobs"])


def top_service(options: CommandOptions) -> int:
    """Print services with their traffic and use, or the replicas of one service."""
    name = options.word()
    return show(CommandSession(options), [service_path(name, "/top") if name else "/v1/services"])


COMMANDS = {
    "": CliCommand(
        "top",
        "Show the nodes with their used and free resources, and the running jobs with the resources that they hold.",
        top,
        flags=(WATCH, FORMAT),
        examples=("fairway top", "fairway top --watch", "fairway top job mnist"),
    ),
    "node": CliCommand(
        "top node",
        "Show the resources of the nodes, used and free.",
        top_node,
        words=(PositionalArgument("NAME", "only this node", optional=True),),
        flags=(WATCH, FORMAT),
    ),
    "job": CliCommand(
        "top job",
        "Show how much of their CPU and memory running jobs use, and their speed; of one job, task by task. "
        "Measures for half a second.",
        top_job,
        words=(PositionalArgument("NAME", "the tasks of this run, or of a series' newest run", optional=True),),
        flags=(WATCH, FORMAT),
        examples=("fairway top job", "fairway top job mnist"),
    ),
    "service": CliCommand(
        "top service",
        "Show the load and latency of services; of one service, what each replica uses.",
        top_service,
        words=(PositionalArgument("NAME", "the replicas of this service", optional=True),),
        flags=(WATCH, FORMAT),
        examples=("fairway top service mnist",),
    ),
}
