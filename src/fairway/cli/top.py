"""`fairway top`: use of nodes, jobs and services."""

from __future__ import annotations

from fairway.cli.address import job_name, service_path
from fairway.cli.grammar import FORMAT, Command, Options, Word
from fairway.cli.session import Session
from fairway.cli.watching import WATCH, show
from fairway.sdk.wire import quote


def top(options: Options) -> int:
    """Print the nodes, and below them the running jobs."""
    return show(Session(options), ["/v1/nodes", "/v1/top/jobs"], merged=True)


def top_node(options: Options) -> int:
    """Print nodes with their total, used and free capacity, device by device."""
    name = options.word()
    return show(Session(options), [f"/v1/nodes/{quote(name)}" if name else "/v1/nodes"])


def top_job(options: Options) -> int:
    """Print running jobs, or the tasks of one job, with the use of their allocated resources."""
    name = options.word()
    return show(Session(options), [f"/v1/top/jobs/{quote(job_name(name))}" if name else "/v1/top/jobs"])


def top_service(options: Options) -> int:
    """Print services with their traffic and use, or the replicas of one service."""
    name = options.word()
    return show(Session(options), [service_path(name, "/top") if name else "/v1/services"])


COMMANDS = {
    "": Command(
        "top",
        "Show the nodes with their used and free resources, and the running jobs with the resources that they hold.",
        top,
        flags=(WATCH, FORMAT),
        examples=("fairway top", "fairway top --watch", "fairway top job mnist"),
    ),
    "node": Command(
        "top node",
        "Show the resources of the nodes, used and free.",
        top_node,
        words=(Word("NAME", "only this node", optional=True),),
        flags=(WATCH, FORMAT),
    ),
    "job": Command(
        "top job",
        "Show how much of their CPU and memory running jobs use, and their speed; of one job, task by task. "
        "Measures for half a second.",
        top_job,
        words=(Word("NAME", "the tasks of this run, or of a series' newest run", optional=True),),
        flags=(WATCH, FORMAT),
        examples=("fairway top job", "fairway top job mnist"),
    ),
    "service": Command(
        "top service",
        "Show the load and latency of services; of one service, what each replica uses.",
        top_service,
        words=(Word("NAME", "the replicas of this service", optional=True),),
        flags=(WATCH, FORMAT),
        examples=("fairway top service mnist",),
    ),
}
