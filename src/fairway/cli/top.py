"""`fairway top`: what uses the machine."""

from __future__ import annotations

from fairway.cli.address import job_name, service_path
from fairway.cli.grammar import FORMAT, Command, Options, Word
from fairway.cli.session import Session
from fairway.sdk.wire import quote


def top_node(options: Options) -> int:
    """Print nodes: capacity, what is taken, what is left, device by device."""
    name = options.word()
    Session(options).show(f"/v1/nodes/{quote(name)}" if name else "/v1/nodes")
    return 0


def top_job(options: Options) -> int:
    """Print running jobs with what they hold, or the tasks of one with what they use."""
    name = options.word()
    Session(options).show(f"/v1/top/jobs/{quote(job_name(name))}" if name else "/v1/top/jobs")
    return 0


def top_service(options: Options) -> int:
    """Print services with what comes in and what their replicas use, or the replicas of one."""
    name = options.word()
    Session(options).show(service_path(name, "/top") if name else "/v1/services")
    return 0


COMMANDS = {
    "node": Command(
        "top node",
        "Show what there is, what is taken and what is left.",
        top_node,
        words=(Word("NAME", "only this node", optional=True),),
        flags=(FORMAT,),
    ),
    "job": Command(
        "top job",
        "Show what running jobs hold and how fast they go; of one job, what each task uses.",
        top_job,
        words=(Word("NAME", "the tasks of this run, or of a series' newest run", optional=True),),
        flags=(FORMAT,),
        examples=("fairway top job", "fairway top job mnist"),
    ),
    "service": Command(
        "top service",
        "Show what services are asked and how they do; of one service, what each replica uses.",
        top_service,
        words=(Word("NAME", "the replicas of this service", optional=True),),
        flags=(FORMAT,),
        examples=("fairway top service mnist",),
    ),
}
