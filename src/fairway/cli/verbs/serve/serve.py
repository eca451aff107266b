"""`fairway serve`: serve a model, or any HTTP server."""

from __future__ import annotations

import os
import re
import time

from fairway.cli.address import service_path
from fairway.cli.argument_parser import FORMAT, PLAN, CliCommand, CommandFlag, CommandOptions, PositionalArgument
from fairway.cli.flag.endpoint import ENDPOINT, endpoint_of, make_key
from fairway.cli.flag.job import with_unit
from fairway.cli.session import CommandSession, say, show_line, write_json
from fairway.cli.submission import print_plan
from fairway.cli.terminal.service_wait import ServiceWait
from fairway.cli.verbs.serve.rollout import ALLOW_SIGNATURE_CHANGE
from fairway.errors import UsageError
from fairway.sdk.submission import document
from fairway.units import quantity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TIMEOUT = "10m"
"""Default wait; equals the time that a first release has to become ready (`guard.ready`)."""
PROTOCOLS = ("http", "http2", "grpc")
RUNTIMES = ("auto", "onnx", "torch", "savedmodel", "python")
_REPLICAS = re.compile(r"([0-9]+)(?:\.\.([0-9]+))?")


def serve(options: CommandOptions) -> int:
    """Create or change the service, wait until it answers, and print a request that works."""
    limit = _limit(options)
    session = CommandSession(options)
    service_document = make_service(options, session.namespace)
    if session.cluster is not None:
        service_document = _for_cluster(session, service_document, plan=options.on("plan"))
    body = {
        "document": service_document,
        "origin": document.make_origin(os.getcwd(), interpreter=document.find_python()),
    }
    if options.on("plan"):
        return print_plan(session, "/v1/services", body)
    session.announce()
    created = session.send("POST", "/v1/services", body)
    name = created["name"]
    if options.text("key"):
        make_key(session, name, options.text("key"))
    if options.on("detach"):
        return _print(session, options, name)
    say(f"{name}: waiting until it answers; Ctrl-C stops waiting, the service stays")
    watch = ServiceWait(session, name, time.monotonic() + limit)
    service, reason = watch.settle()
    if reason:
        watch.explain(service, reason)
        return 1
    return _print(session, options, name)


def _limit(options: CommandOptions) -> float:
    """Return the maximum wait in seconds."""
    text = options.text("timeout") or TIMEOUT
    try:
        return quantity.seconds(text)
    except ValueError as error:
        message = f"--timeout {text} {error}"
        raise UsageError(message) from None


def _for_cluster(session: CommandSession, wanted: dict[str, Any], *, plan: bool) -> dict[str, Any]:
    """Upload the command's folder with the document: the cluster cannot reach the files of this machine."""
    from fairway.cli.cluster.upload import with_code

    spec = dict(wanted["spec"])
    if "code" in spec:
        spec["code"] = {"path": spec["code"]["path"]}
    spec.pop("environment", None)
    return with_code(session, {**wanted, "spec": spec}, os.getcwd(), {}, plan=plan)


def _print(session: CommandSession, options: CommandOptions, name: str) -> int:
    if options.text("format") == "json":
        write_json(session.fetch(service_path(name)))
        return 0
    if options.text("format") not in ("", "name"):
        session.show(service_path(name))
        return 0
    service = session.fetch(service_path(name))
    if options.text("format") == "name":
        show_line(name)
    elif service["url"]:
        show_line(service["url"])
    if not service["url"]:
        say(f"{name} does not listen yet: fairway wait service/{name}")
    if service["example"]:
        say(f"try: {service['example']}")
    if service["url"] and options.word():
        say(f"docs: {service['url']}/docs; metrics: {service['url']}/metrics")
    say(f"next: fairway get service/{name}; fairway logs service/{name}; fairway bench service/{name}")
    return 0


def make_service(options: CommandOptions, namespace: str) -> dict[str, Any]:
    """Return the document for the flags, in the Kubernetes spelling."""
    model, command = options.word(), options.rest
    if bool(model) == bool(command):
        message = "one model or one command is needed"
        raise UsageError(message, fix="fairway serve mnist@champion, or fairway serve --name chat -- python server.py")
    name = options.text("name") or model.partition("@")[0].rpartition("/")[2]
    if not name:
        message = "a service that runs a command needs a name"
        raise UsageError(message, fix="fairway serve --name chat -- ...")
    spec: dict[str, Any] = {"model": model} if model else {"command": list(command), "code": {"path": ".", "inPlace": True}}
    if options.on("follow"):
        spec["follow"] = True
    if options.on("allow-signature-change"):
        spec["rollout"] = {"allowSignatureChange": True}
    if options.on("batching") or options.on("no-batching"):
        spec["batching"] = {"mode": _batching(options, model)}
    for flag, field in (("runtime", "runtime"), ("ready", "ready"), ("protocol", "protocol"), ("queue", "queue")):
        if options.text(flag):
            spec[field] = options.text(flag)
    if options.number("port") is not None:
        spec["port"] = options.number("port")
    if options.text("python"):
        python = options.text("python")
        spec["environment"] = {"python": os.path.abspath(python) if os.sep in python else python}
    spec.update(endpoint_of(options) | _amounts(options))
    return {
        "apiVersion": "fairway.dev/v1alpha1",
        "kind": "ModelService",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def _batching(options: CommandOptions, model: str) -> str:
    if options.on("batching") and options.on("no-batching"):
        message = "--batching and --no-batching exclude each other"
        raise UsageError(message, fix="keep one; without either, a proof at the start decides")
    if not model:
        message = (
            f"--{'no-' if options.on('no-batching') else ''}batching applies only to a model, and this service runs a command"
        )
        raise UsageError(message, fix="leave it out: the command's own server decides how it batches")
    return "always" if options.on("batching") else "never"


def _amounts(options: CommandOptions) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if options.text("replicas"):
        match = _REPLICAS.fullmatch(options.text("replicas"))
        if match is None:
            message = f"--replicas {options.text('replicas')}: expected a number or a range such as 0..4"
            raise UsageError(message, fix="write --replicas 2, or --replicas 0..4")
        least = int(match[1])
        fields["replicas"] = {"min": least, "max": int(match[2]) if match[2] else max(1, least)}
    resources: dict[str, Any] = {}
    if options.text("cpus"):
        resources["cpu"] = options.text("cpus")
    if options.text("memory"):
        resources["memory"] = with_unit(options, "memory", "Gi")
    if options.text("gpus"):
        kind, mark, count = document.split_gpus(options.text("gpus"), "--gpus")
        resources.update({"gpu": count, "gpuType": [kind]} if mark else {"gpu": count})
    if resources:
        fields["resources"] = resources
    if options.text("p95"):
        fields["objective"] = {"p95": with_unit(options, "p95", "ms")}
    if options.pairs("env"):
        fields["env"] = options.pairs("env")
    return fields


COMMANDS = {
    "": CliCommand(
        "serve",
        "Serve a model version, or any HTTP server that listens on $FAIRWAY_PORT. Waits until it answers. "
        "Serving under an existing name releases the changes.",
        serve,
        words=(PositionalArgument("MODEL", "mnist, mnist@7 or mnist@champion", optional=True),),
        flags=(
            CommandFlag("--name", "the name of the service (default: the model's name)", "NAME"),
            CommandFlag("--replicas", "number of replicas: 2, or 0..4 to scale with the load", "N"),
            CommandFlag("--port", "the port to listen on (default: a free port, which then stays the same)", "N", number=True),
            *ENDPOINT,
            CommandFlag("--p95", "the latency objective: 95 of 100 replies within this time", "TIME"),
            CommandFlag("--runtime", f"what runs the model: {', '.join(RUNTIMES)}", "NAME", choices=RUNTIMES),
            CommandFlag(
                "--batching", "batch rows of several requests without a proof: declares that each row is computed independently"
            ),
            CommandFlag(
                "--no-batching", "do not batch requests (default: batch them where a proof at the start shows that it is safe)"
            ),
            CommandFlag("--follow", "start a release whenever the alias is promoted"),
            ALLOW_SIGNATURE_CHANGE,
            CommandFlag("--ready", "the path that answers 200 when a command's server is ready (default: /)", "PATH"),
            CommandFlag(
                "--protocol", "the protocol of a command's server: http (default), http2 or grpc", "NAME", choices=PROTOCOLS
            ),
            CommandFlag("--gpus", "GPUs per replica: 1, 0.25, H100:1", "N"),
            CommandFlag("--cpus", "CPU cores per replica: 2, 500m", "N"),
            CommandFlag("--memory", "memory per replica: 512Mi, 2Gi", "SIZE"),
            CommandFlag("--env -e", "an environment variable of the replicas; may be given again", "NAME=VALUE", many=True),
            CommandFlag("--python", "the interpreter or virtual environment that has the model's framework", "PATH"),
            CommandFlag("--queue", "the queue whose share of the machines the replicas use (default: default)", "NAME"),
            CommandFlag("--timeout", f"how long to wait until it answers (default: {TIMEOUT}); the service stays", "TIME"),
            CommandFlag("--detach -d", "do not wait until it answers"),
            PLAN,
            FORMAT,
        ),
        rest="COMMAND...",
        examples=(
            "fairway serve mnist@champion",
            "fairway serve mnist --replicas 1..4 --p95 50ms",
            "fairway serve mnist --bind 0.0.0.0 --tls self-signed --key ci",
            "fairway serve --name chat --port 8000 --gpus 1 -- vllm serve MODEL --port {{port}}",
        ),
    )
}
