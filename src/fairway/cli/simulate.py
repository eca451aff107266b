"""`fairway simulate`: run the scheduler on a recorded trace, in this process. The daemon is used only for --history."""

from __future__ import annotations

import sys

from fairway.cli.grammar import FORMAT, Command, Flag, Options
from fairway.cli.progress import Progress
from fairway.cli.session import Session, is_terminal, say, show_line, terminal_width, write, write_json
from fairway.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairway.simulation.queue.entry import Entry
    from fairway.simulation.queue.floor import Nodes
    from fairway.simulation.report.figures import Result
    from fairway.simulation.report.page import Page
    from fairway.simulation.report.tables import Table

PAGE = 500
"""Number of runs fetched per request."""


def placement(options: Options) -> int:
    """Fill a cluster with recorded pods, or simulate their arrival and departure."""
    from fairway.simulation import files, runs
    from fairway.simulation.report import pages, tables

    session = Session(options)
    policies = options.many("policy") or [runs.DEFAULT_POLICY]
    runs.check_policies(policies, runs.PLACEMENT_POLICIES)
    load = _load(options.text("churn"))
    seed = options.number("seed")
    if seed is not None:
        policies = [f"{policy}:{seed}" if policy == "random" else policy for policy in policies]
    change = runs.Change.parse(options.text("add-nodes"), options.number("remove-nodes") or 0)
    nodes, pods = files.read_nodes(_needed(options, "nodes")), files.read_pods(_needed(options, "pods"))
    mix = files.read_mix(options.text("mix", "given"))
    order = files.read_order(options.text("order")) if options.text("order") else runs.drawn_order(nodes, pods, seed or 0)
    runs.check_order(nodes, pods, order)
    nodes, order = runs.change_nodes(nodes, order, change)
    facts = {"pods from": options.text("pods")}
    progress = Progress(shown=is_terminal(2))
    wide = session.output == "wide"
    try:
        if load is not None:
            moving = runs.come_and_go(nodes, pods, load, policies, mix, seed or 0, progress)
            return _show(session, moving, tables.churn_table(moving, wide=wide), lambda: pages.churn_page(moving, facts))
        results = runs.place(nodes, pods, order, policies, mix, progress)
    finally:
        progress.close()
    return _show(session, results, tables.placement_table(results, wide=wide), lambda: pages.placement_page(results, facts))


def queue(options: Options) -> int:
    """Replay a recorded queue."""
    from fairway.simulation import files, runs
    from fairway.simulation.queue.floor import Nodes
    from fairway.simulation.report import pages, tables

    session = Session(options)
    policies = options.many("policy") or [runs.DEFAULT_POLICY]
    runs.check_policies(policies, runs.QUEUE_POLICIES)
    change = runs.Change.parse(options.text("add-nodes"), options.number("remove-nodes") or 0)
    if options.on("history") == bool(options.text("trace")):
        raise UsageError("fairway simulate queue needs a trace or a history", fix="give one of --trace FILE.csv and --history")
    nodes_text = options.text("nodes")
    if options.on("history"):
        entries, nodes = _history(Nodes.parse(nodes_text) if nodes_text else None)
        facts = {"jobs from": "the history of this home"}
    else:
        entries, nodes = files.read_jobs(options.text("trace")), Nodes.parse(_needed(options, "nodes"))
        facts = {"jobs from": options.text("trace")}
    nodes = runs.change_queue_nodes(nodes, change)
    progress = Progress(shown=is_terminal(2))
    try:
        results = runs.queue(entries, nodes, policies, progress)
    finally:
        progress.close()
    table = tables.queue_table(results, wide=session.output == "wide")
    return _show(session, results, table, lambda: pages.queue_page(results, facts))


def _needed(options: Options, key: str) -> str:
    text = options.text(key)
    if not text:
        flag = options.command.find(f"--{key}")
        fix = f"add --{key} {flag.value}: {flag.help}"
        raise UsageError(f"fairway {options.command.name} needs --{key}", fix=fix)
    return text


def _load(text: str) -> float | None:
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        fix = "write --churn 1.1 for 10 % more than the cluster has"
        raise UsageError(f"--churn {text}: a number is needed", fix=fix) from None


def _history(nodes: Nodes | None) -> tuple[Sequence[Entry], Nodes]:
    """Return the finished runs of this home, and its nodes unless `nodes` is given."""
    from fairway.sdk.client import Client
    from fairway.simulation.history import has_gaps, read_history
    from fairway.simulation.queue.floor import Nodes

    client = Client(namespace="*")
    finished_runs, before = [], ""
    while True:
        page = client.list(phase="succeeded,failed,stopped", limit=PAGE, before=before)
        finished_runs += [Client(namespace=run.namespace).get(run) if has_gaps(run) else run for run in page.jobs]
        before = page.next
        if not before:
            break
    history = read_history(finished_runs)
    if history.without_gpus or history.unfinished:
        say(f"left out: {history.without_gpus} runs without a GPU, {history.unfinished} that never ran")
    if not history.entries:
        fix = "use a trace with --trace FILE.csv, or try again when some have finished"
        raise UsageError("no finished run of this home asked for a GPU", fix=fix)
    if nodes is None:
        sizes = [node.gpus for node in client.nodes() if node.gpus]
        if not sizes:
            raise UsageError("there is no GPU on this machine, and no nodes are given", fix="give the nodes: --nodes 1x8")
        nodes = Nodes(len(sizes), max(sizes))
    return history.entries, nodes


def _show(session: Session, results: Sequence[Result], table: Table, page: Callable[[], Page]) -> int:
    from fairway.simulation.report.figures import figures

    report = session.options.text("report")
    if report:
        _write_report(report, page())
    form = session.output
    if form == "json":
        write_json(figures(results))
    elif form == "yaml":
        import yaml

        write(yaml.safe_dump(figures(results), sort_keys=False, allow_unicode=True).encode())
    elif form == "name":
        for result in results:
            show_line(result.policy)
    else:
        from fairway.views import table as views

        columns, rows = table
        write(views.table(columns, rows, views.Page(width=terminal_width())).encode())
    return 0


def _write_report(path: str, page: Page) -> None:
    import shlex

    from fairway.simulation.report.page import write_page

    text = write_page(page, shlex.join(["fairway", *sys.argv[1:]]))
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"--report {path}: {error.strerror}", fix="name a file in a folder that can be written") from error
    say(f"the report is in {path}")


_ADD = Flag("--add-nodes", "number of nodes to add; 4x8 for 4 nodes with 8 GPUs each", "N[xG]")
_REMOVE = Flag("--remove-nodes", "number of nodes to remove, evenly from all kinds", "N", number=True)
_REPORT = Flag("--report", "write an HTML report with plots to this file", "FILE.html")

COMMANDS = {
    "placement": Command(
        "simulate placement",
        "Fill a cluster with recorded pods and show how much of it can be used before they no longer fit.",
        placement,
        flags=(
            Flag("--nodes", "the nodes, a table with: sn, cpu_milli, memory_mib, gpu, model", "N.csv"),
            Flag("--pods", "the pods, a table with: name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec", "P.csv[.gz]"),
            Flag("--order", "the order in which pods arrive (default: random)", "O.json[.gz]"),
            Flag(
                "--policy",
                "random, bundle, spread, dot-product, best-fit, gpu-packing, gpu-clustering, fgd or fairway (the default);"
                " may be given again, to compare policies",
                "NAME",
                many=True,
            ),
            Flag(
                "--mix",
                "what the policies assume about the workload: given (default: that of the pods), learned, or from a list",
                "MIX",
            ),
            Flag("--churn", "let pods come and go; the requested GPUs relative to those of the cluster: 1.1", "LOAD"),
            Flag("--seed", "seed of the random numbers (default: 0)", "N", number=True),
            _ADD,
            _REMOVE,
            _REPORT,
            FORMAT,
        ),
        examples=(
            "fairway simulate placement --nodes nodes.csv --pods pods.csv.gz --order order.json.gz --policy fairway --policy fgd",
            "fairway simulate placement --nodes nodes.csv --pods pods.csv.gz --churn 1.1 --add-nodes 20x8 -o json",
        ),
    ),
    "queue": Command(
        "simulate queue",
        "Replay a recorded queue and show how long jobs would have waited.",
        queue,
        flags=(
            Flag("--trace", "the jobs, a table with: submit_s, gpus, duration_s, and optionally model", "T.csv"),
            Flag("--history", "use the finished runs of this home instead of a trace"),
            Flag("--nodes", "number of nodes, and of GPUs on each: 14x8 (default with --history: those of this machine)", "NxG"),
            Flag(
                "--policy",
                "fifo, fifo-skip, backfill, sjf-oracle, las, srtf-oracle or fairway (the default);"
                " may be given again, to compare policies",
                "NAME",
                many=True,
            ),
            _ADD,
            _REMOVE,
            _REPORT,
            FORMAT,
        ),
        examples=(
            "fairway simulate queue --trace jobs.csv --nodes 14x8 --policy fifo --policy fairway --report queue.html",
            "fairway simulate queue --history --add-nodes 1",
        ),
    ),
}
