"""`fairway bench`: load test of a service. This process generates the load; the daemon only supplies the service's URL."""

from __future__ import annotations

import os
import sys

from fairway.cli.address import service_path
from fairway.cli.argument_parser import FORMAT, CliCommand, CommandFlag, CommandOptions, PositionalArgument
from fairway.cli.session import CommandSession, has_colour, is_terminal, say, show_line, terminal_width, write
from fairway.cli.verbs.serve.bench_access import key_headers, tls_of
from fairway.errors import ConflictError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl

    from fairway.serving.bench.load_point import LoadPoint
    from fairway.views.serving.bench import BenchPoint, BenchView

STEPS = "1,2,4,8,16,32,64"
MOST_RATE = 100_000


def bench(options: CommandOptions) -> int:
    """Send requests over more and more connections, and report where the knee is."""
    session = CommandSession(options)
    service = session.fetch(service_path(options.word()))
    if not service["url"]:
        message = f"{service['name']} does not listen yet"
        raise ConflictError(message, fix=f"see `fairway get service/{service['name']}`")
    path, body = _request(options, service)
    seconds = _seconds(options)
    connections = _connections(options)
    loads = [(connections[-1], rate) for rate in _rates(options)] or [(number, 0.0) for number in connections]
    with key_headers(session, service) as headers:
        view = _measure(service["url"] + path, body, loads, seconds, headers, tls_of(service))
    if options.text("report"):
        _write_report(view, options.text("report"))
    _show(session, view)
    return 0 if any(point.answered for point in view.points) else 1


def _request(options: CommandOptions, found: dict[str, object]) -> tuple[str, bytes]:
    if options.text("data"):
        with open(options.text("data"), "rb") as file:
            body = file.read()
    else:
        body = str(found["example_body"]).encode()
    path = options.text("path") or str(found["example_path"]) or "/"
    return (path if path.startswith("/") else f"/{path}"), body


def _connections(options: CommandOptions) -> list[int]:
    text = options.text("connections") or STEPS
    try:
        counts = sorted({int(word) for word in text.split(",")})
    except ValueError:
        counts = [0]
    if counts[0] < 1 or counts[-1] > 4096:
        message = f"--connections {text}: expected numbers from 1 to 4096, separated by commas"
        raise UsageError(message, fix=f"write --connections {STEPS}")
    return counts


def _rates(options: CommandOptions) -> list[float]:
    """Return the rates of an open loop; empty for a closed loop."""
    text = options.text("rate")
    try:
        rates = sorted({float(word) for word in text.split(",")}) if text else []
    except ValueError:
        rates = [0.0]
    if rates and not 0.0 < rates[0] <= rates[-1] <= MOST_RATE:
        message = f"--rate {text}: expected numbers up to {MOST_RATE:,}, separated by commas"
        raise UsageError(message, fix="write --rate 100,200,400")
    return rates


def _seconds(options: CommandOptions) -> float:
    from fairway.units import quantity

    text = options.text("time") or "2s"
    try:
        return quantity.seconds(text)
    except ValueError as error:
        message = f"--time {text} {error}"
        raise UsageError(message) from None


def _measure(
    url: str,
    body: bytes,
    loads: list[tuple[int, float]],
    seconds: float,
    headers: dict[str, str],
    tls: tuple[ssl.SSLContext, str] | None,
) -> BenchView:
    import asyncio

    from fairway.serving.bench.load_generator import drive, request_bytes
    from fairway.serving.bench.load_point import knee
    from fairway.views.serving.bench import BenchView

    request = request_bytes(url, body, {**({"Content-Type": "application/json"} if body else {}), **headers})
    points: list[LoadPoint] = []
    for number, rate in loads:
        load = f"{rate:g} requests a second" if rate else f"{number} connection{'' if number == 1 else 's'}"
        if is_terminal(2):
            sys.stderr.write(f"\r\x1b[K{load} ({len(points) + 1} of {len(loads)}) ...")
            sys.stderr.flush()
        else:
            say(f"{load} for {seconds:g} s ({len(points) + 1} of {len(loads)})")
        points.append(asyncio.run(drive(url, request, number, seconds, tls, rate)))
    if is_terminal(2):
        sys.stderr.write("\r\x1b[K")
    best = knee(points)
    return BenchView(url, seconds, tuple(_shown(point) for point in points), best.connections if best else 0)


def _shown(found: LoadPoint) -> BenchPoint:
    from fairway.views.serving.bench import BenchPoint

    p50, p90, p95, p99 = (round(1000 * found.latency.get(percent, 0.0), 3) for percent in (50, 90, 95, 99))
    statuses = {str(status): count for status, count in sorted(found.statuses.items())}
    rate = round(found.rate, 1)
    numbers = (p50, p90, p95, p99, found.answered, found.failed, statuses)
    return BenchPoint(found.connections, rate, *numbers, offered=found.offered, client_cpu=round(found.client_cpu, 3))


def _show(session: CommandSession, view: BenchView) -> None:
    from fairway.views.serving.bench import bench_text
    from fairway.views.text.output_format import to_json, to_yaml
    from fairway.views.text.table import TextPage

    if session.output == "json":
        write(to_json(view, pretty=True))
    elif session.output == "yaml":
        write(to_yaml(view).encode())
    elif session.output == "name":
        show_line(str(view.knee))
    else:
        write(bench_text(view, TextPage(terminal_width(), has_colour(1), wide=session.output == "wide")).encode())


def _write_report(view: BenchView, path: str) -> None:
    import shlex

    from fairway.simulation.report.chart_page import write_page
    from fairway.simulation.report.load_test_page import bench_page

    with open(path, "w", encoding="utf-8") as file:
        file.write(write_page(bench_page(view), shlex.join(["fairway", *sys.argv[1:]])))
    say(f"the report is in {os.path.abspath(path)}")


COMMANDS = {
    "": CliCommand(
        "bench",
        "Load-test a service: measure replies per second and latency with more and more connections, and find the knee.",
        bench,
        words=(PositionalArgument("NAME", "a service: mnist or service/mnist"),),
        flags=(
            CommandFlag(
                "--connections -c", f"numbers of concurrent connections to measure with, in turn (default: {STEPS})", "N,N..."
            ),
            CommandFlag(
                "--rate",
                "open-loop load: this many requests per second at random moments, over the highest number of connections",
                "N,N...",
            ),
            CommandFlag("--time -t", "duration of each measurement (default: 2s)", "TIME"),
            CommandFlag("--data", "the body of the request (default: zeros of the model's shape)", "FILE"),
            CommandFlag("--path", "the path to request (default: the model's infer route, or /)", "PATH"),
            CommandFlag("--report", "write an HTML report with plots to this file", "FILE.html"),
            FORMAT,
        ),
        examples=(
            "fairway bench service/mnist",
            "fairway bench service/mnist -c 1,16,64 --report bench.html",
            "fairway bench service/mnist --rate 200,400,800 -c 64",
        ),
    )
}
