"""`fairway simulate`: run the scheduler on a recorded trace, in this process. The daemon is used only for --history."""

from __future__ import annotations

import sys

from fairway.cli.argument_parser import FORMAT, CliCommand, CommandFlag, CommandOptions
from fairway.cli.session import CommandSession, is_terminal, say, show_line, terminal_width, write, write_json
from fairway.cli.terminal.progress_bar import ProgressBar
from fairway.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairway.simulation.queue.free_gpus import EqualNodes
    from fairway.simulation.queue.recorded_job import RecordedJob
    from fairway.simulation.report.chart_page import ChartPage
    from fairway.simulation.report.result_data import Result
    from fairway.simulation.report.table import Table

PAGE = 500
"""Number of runs fetched per request."""


def placement(options: CommandOptions) -> int:
    """Fill a cluster with recorded pods, or simulate their arrival and departure."""
    from fairway.simulation import input_file, simulation_run
    from fairway.simulation.report import simulation_page
    from fairway.simulation.report import table as report_table

    session = CommandSession(options)
    policies = options.many("policy") or [simulation_run.DEFAULT_POLICY]
    simulation_run.check_policies(policies, simulation_run.PLACEMENT_POLICIES)
    load = _load(options.text("churn"))
    seed = options.number("seed")
    if seed is not None:
        policies = [f"{policy}:{seed}" if policy == "random" else policy for policy in policies]
    change = simulation_run.NodeChange.parse(options.text("add-nodes"), options.number("remove-nodes") or 0)
    nodes, pods = input_file.read_nodes(_needed(options, "nodes")), input_file.read_pods(_needed(options, "pods"))
    mix = input_file.read_mix(options.text("mix", "given"))
    order = (
        input_file.read_order(options.text("order"))
        if options.text("order")
        else simulation_run.drawn_order(nodes, pods, seed or 0)
    )
    simulation_run.check_order(nodes, pods, order)
    nodes, order = simulation_run.change_nodes(nodes, order, change)
    facts = {"pods from": options.text("pods")}
    progress = ProgressBar(shown=is_terminal(2))
    wide = session.output == "wide"
    try:
        if load is not None:
            moving = simulation_run.come_and_go(nodes, pods, load, policies, mix, seed or 0, progress)
            return _show(
                session, moving, report_table.churn_table(moving, wide=wide), lambda: simulation_page.churn_page(moving, facts)
            )
        results = simulation_run.place(nodes, pods, order, policies, mix, progress)
    finally:
        progress.close()
    return _show(
        session, results, report_table.placement_table(results, wide=wide), lambda: simulation_page.placement_page(results, facts)
    )


def queue(options: CommandOptions) -> int:
    """Replay a recorded queue."""
    from fairway.simulation import input_file, simulation_run
    from fairway.simulation.queue.free_gpus import EqualNodes
    from fairway.simulation.report import simulation_page
    from fairway.simulation.report import table as report_table

    session = CommandSession(options)
    policies = options.many("policy") or [simulation_run.DEFAULT_POLICY]
    simulation_run.check_policies(policies, simulation_run.QUEUE_POLICIES)
    change = simulation_run.NodeChange.parse(options.text("add-nodes"), options.number("remove-nodes") or 0)
    if options.on("history") == bool(options.text("trace")):
        raise UsageError("fairway simulate queue needs a trace or a history", fix="give one of --trace FILE.csv and --history")
    nodes_text = options.text("nodes")
    if options.on("history"):
        entries, nodes = _history(EqualNodes.parse(nodes_text) if nodes_text else None)
        facts = {"jobs from": "the history of this home"}
    else:
        entries, nodes = input_file.read_jobs(options.text("trace")), EqualNodes.parse(_needed(options, "nodes"))
        facts = {"jobs from": options.text("trace")}
    nodes = simulation_run.change_queue_nodes(nodes, change)
    progress = ProgressBar(shown=is_terminal(2))
    try:
        results = simulation_run.queue(entries, nodes, policies, progress)
    finally:
        progress.close()
    table = report_table.queue_table(results, wide=session.output == "wide")
    return _show(session, results, table, lambda: simulation_page.queue_page(results, facts))


def _needed(options: CommandOptions, key: str) -> str:
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


def _history(nodes: EqualNodes | None) -> tuple[Sequence[RecordedJob], EqualNodes]:
    """Return the finished runs of this home, and its nodes unless `nodes` is given."""
    from fairway.sdk.client import Client
    from fairway.simulation.queue.free_gpus import EqualNodes
    from fairway.simulation.run_history import has_gaps, read_history

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
        nodes = EqualNodes(len(sizes), max(sizes))
    return history.entries, nodes


def _show(session: CommandSession, results: Sequence[Result], table: Table, page: Callable[[], ChartPage]) -> int:
    from fairway.simulation.report.result_data import figures

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
        from fairway.views.text import table as views

        columns, rows = table
        write(views.table(columns, rows, views.TextPage(width=terminal_width())).encode())
    return 0


def _write_report(path: str, page: ChartPage) -> None:
    import shlex

    from fairway.simulation.report.chart_page import write_page

    text = write_page(page, shlex.join(["fairway", *sys.argv[1:]]))
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"--report {path}: {error.strerror}", fix="name a file in a folder that can be written") from error
    say(f"the report is in {path}")


_ADD = CommandFlag("--add-nodes", "number of nodes to add; 4x8 for 4 nodes with 8 GPUs each", "N[xG]")
_REMOVE = CommandFlag("--remove-nodes", "number of nodes to remove, evenly from all kinds", "N", number=True)
_REPORT = CommandFlag("--report", "write an HTML report with plots to this file", "FILE.html")

COMMANDS = {
    "placement": CliCommand(
        "simulate placement",
        "Fill a cluster with recorded pods and show how much of it can be used before they no longer fit.",
        placement,
        flags=(
            CommandFlag("--nodes", "the nodes, a table with: sn, cpu_milli, memory_mib, gpu, model", "N.csv"),
            CommandFlag(
                "--pods", "the pods, a table with: name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec", "P.csv[.gz]"
            ),
            CommandFlag("--order", "the order in which pods arrive (default: random)", "O.json[.gz]"),
            CommandFlag(
                "--policy",
                "random, bundle, spread, dot-product, best-fit, gpu-packing, gpu-clustering, fgd or fairway (the default);"
                " may be given again, to compare policies",
                "NAME",
                many=True,
            ),
            CommandFlag(
                "--mix",
                "what the policies assume about the workload: given (default: that of the pods), learned, or from a list",
                "MIX",
            ),
            CommandFlag("--churn", "let pods come and go; the requested GPUs relative to those of the cluster: 1.1", "LOAD"),
            CommandFlag("--seed", "seed of the random numbers (default: 0)", "N", number=True),
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
    "queue": CliCommand(
        "simulate queue",
        "Replay a recorded queue and show how long jobs would have waited.",
        queue,
        flags=(
            CommandFlag("--trace", "the jobs, a table with: submit_s, gpus, duration_s, and optionally model", "T.csv"),
            CommandFlag("--history", "use the finished runs of this home instead of a trace"),
            CommandFlag(
                "--nodes", "number of nodes, and of GPUs on each: 14x8 (default with --history: those of this machine)", "NxG"
            ),
            CommandFlag(
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
