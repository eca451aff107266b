"""The table of verbs, read by the overview, did-you-mean, completion and the entry point.

A verb's module is imported only when the verb is used.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fairway.cli.argument_parser import CliCommand


class CommandVerb:
    """A verb, or a noun with verbs of its own (`secret set`)."""

    def __init__(
        self,
        name: str,
        summary: str,
        *,
        aliases: tuple[str, ...] = (),
        parts: tuple[str, ...] = (),
        names: str = "",
        file: str = "",
    ) -> None:
        self.name = name
        self.summary = summary
        self.aliases = aliases
        self.parts = parts
        """The second words that it accepts."""
        self.names = names
        """The kind of its arguments, for completion: `job`, `file`, `secret` or empty."""
        self.file = file or name
        """The name of its module, without the package."""

    @property
    def module(self) -> str:
        """The name of the module that holds its `COMMANDS`."""
        return f"fairway.cli.verbs.{PACKAGES[self.name]}.{self.file}"

    def load(self) -> dict[str, CliCommand]:
        """Import the module and return its commands by second word; the key is empty for a plain verb."""
        import importlib

        commands: dict[str, CliCommand] = importlib.import_module(self.module).COMMANDS
        return commands


GROUPS: tuple[tuple[str, str, tuple[CommandVerb, ...]], ...] = (
    (
        "train",
        "train",
        (
            CommandVerb("run", "run a command or a document now, and watch it", names="file"),
            CommandVerb("attach", "attach to a run that is not over: its output, its status, your keys", names="job"),
            CommandVerb("submit", "queue a document; each submit is a new run: NAME-1, NAME-2 ...", names="file"),
            CommandVerb("apply", "apply the documents of a file or a folder: jobs, queues, services", names="file"),
            CommandVerb(
                "stop", "stop runs; their checkpoints and outputs are kept", aliases=("cancel", "terminate"), names="job"
            ),
            CommandVerb("resume", "continue a stopped or failed run", names="job"),
            CommandVerb(
                "delete",
                "delete runs with their logs, checkpoints and outputs; queues; services",
                aliases=("rm", "remove"),
                names="job",
            ),
            CommandVerb("prune", "delete finished runs by age, phase or label", names="job"),
            CommandVerb("wait", "wait until runs have ended", names="job"),
        ),
    ),
    (
        "serve",
        "serve",
        (
            CommandVerb("serve", "serve a model, or any HTTP server; prints a request that works"),
            CommandVerb("predict", "run a model over a dataset, as a job"),
            CommandVerb("bench", "load-test a service: throughput, latency, and the knee"),
            CommandVerb("key", "API keys of a service: create, list, revoke", parts=("create", "list", "revoke")),
            CommandVerb("scale", "set the minimum number of replicas of a service"),
            CommandVerb(
                "rollout",
                "releases of a service",
                parts=("start", "status", "pause", "resume", "undo", "history"),
            ),
        ),
    ),
    (
        "inspect",
        "inspect",
        (
            CommandVerb("list", "list runs, or services", aliases=("ps", "ls")),
            CommandVerb(
                "get",
                "show a run: tasks, progress, how it ended; or a service",
                aliases=("describe", "inspect", "show"),
                names="job",
            ),
            CommandVerb("logs", "print the output of the tasks", names="job"),
            CommandVerb("events", "show the events of a run", names="job"),
            CommandVerb("why", "explain why a run waits, failed or restarts, and what would help", names="job"),
            CommandVerb("top", "show what uses the machine: nodes and jobs", parts=("node", "job", "service")),
            CommandVerb("metrics", "print the metrics that a run reported", names="job"),
            CommandVerb("tensorboard", "open TensorBoard over a run", names="job"),
        ),
    ),
    (
        "inside a run",
        "task",
        (
            CommandVerb("exec", "run a command in a task's folder with its environment", names="job"),
            CommandVerb("cp", "copy files from and to a run's folders", names="job"),
        ),
    ),
    (
        "write",
        "document",
        (
            CommandVerb("init", "write a first training job, ready to run"),
            CommandVerb("render", "print a document in the other spelling", names="file"),
            CommandVerb("schema", "print the JSON Schema of documents, for editors"),
        ),
    ),
    (
        "manage",
        "manage",
        (
            CommandVerb("queue", "show queues: runs, share and use of their quota", parts=("list", "get")),
            CommandVerb("simulate", "replay a recorded trace with other machines or policies", parts=("placement", "queue")),
            CommandVerb("defragment", "move runs so that free GPUs are together and a waiting run can start"),
            CommandVerb(
                "model",
                "keep versions of models, with their origin and aliases",
                parts=("register", "import", "list", "get", "diff", "promote", "pull", "verify", "delete"),
            ),
            CommandVerb(
                "data",
                "keep versions of datasets for jobs to read",
                parts=("add", "list", "get", "pull", "verify", "diff"),
                file="dataset",
            ),
            CommandVerb("secret", "keep secret values for tasks", parts=("set", "list", "delete"), names="secret"),
            CommandVerb("use", "choose where commands act: this machine, or a cluster"),
            CommandVerb("install", "install Fairway on a cluster: definitions, operator, scheduler", parts=("kubernetes",)),
            CommandVerb("uninstall", "remove Fairway from a cluster", parts=("kubernetes",)),
            CommandVerb("config", "show the effective defaults, and where each comes from"),
            CommandVerb("doctor", "check this machine: what works, what is missing and how to fix it"),
            CommandVerb(
                "daemon", "show, start or stop the background process; it starts by itself", parts=("status", "start", "stop")
            ),
            CommandVerb("completion", "print completion for a shell", parts=("bash", "zsh", "fish")),
            CommandVerb("version", "print the version"),
        ),
    ),
)

"""Title in the overview, package below `fairway.cli.verbs`, and verbs of each group."""

VERBS: dict[str, CommandVerb] = {verb.name: verb for _, _, group in GROUPS for verb in group}
PACKAGES: dict[str, str] = {verb.name: package for _, package, group in GROUPS for verb in group}
ALIASES: dict[str, str] = {alias: verb.name for verb in VERBS.values() for alias in verb.aliases}


HINTS: dict[str, str] = {
    "status": "`fairway list` shows all runs, `fairway get NAME` one of them, `fairway daemon status` the daemon",
    "state": "`fairway get NAME`",
    "info": "`fairway get NAME`, or `fairway doctor` for this machine",
    "kill": "`fairway stop NAME`; `fairway stop --now NAME` kills it without time to save",
    "down": "`fairway stop NAME` ends a run, `fairway delete service/NAME` a service",
    "up": "`fairway apply -f FILE`",
    "launch": "`fairway run -- python train.py`, or `fairway submit job.yaml` to queue it",
    "start": "`fairway run -- python train.py`, or `fairway resume NAME` for a run that was stopped",
    "train": "`fairway run -- python train.py`",
    "create": "`fairway submit job.yaml`, or `fairway apply -f FILE`",
    "login": "there is nothing to log in to: this machine needs none, and a cluster is chosen with `fairway use NAME`",
    "logout": "there is nothing to log out of; `fairway use local` leaves a cluster",
    "restart": "`fairway resume NAME` continues from the last checkpoint; `fairway submit --like NAME` starts over",
    "retry": "`fairway resume NAME`, or `fairway submit --like NAME` to start over",
    "watch": "`fairway list --watch`, or `fairway logs -f NAME`",
    "tail": "`fairway logs -f NAME`",
    "jobs": "`fairway list`",
    "nodes": "`fairway top node`",
    "gpus": "`fairway top node`",
    "deploy": "`fairway serve MODEL`",
    "clean": "`fairway prune --older-than 30d`",
    "ssh": "`fairway exec -it NAME -- bash`",
    "shell": "`fairway exec -it NAME -- bash`",
    "set": "`fairway config` shows the defaults and the files that they come from",
    "tune": "there is no such verb yet; a loop over `fairway submit job.yaml --env LR=...` submits one run per value",
    "srun": "`fairway run -- COMMAND`",
    "sbatch": "`fairway submit -- COMMAND`",
    "squeue": "`fairway list --active`",
    "scancel": "`fairway stop NAME`",
    "sinfo": "`fairway top node`",
    "mpirun": "`fairway run --framework mpi -w 2 -- COMMAND`",
    "torchrun": "`fairway run -- torchrun train.py`",
}
"""The nearest equivalents for verbs of other tools that are not exact synonyms of a verb here."""


def find_verb(word: str) -> CommandVerb | None:
    """Return the verb with this name or alias; None if there is none."""
    return VERBS.get(ALIASES.get(word, word))


def overview() -> str:
    """Return the help of `fairway` itself."""
    lines = ["fairway: deep learning, from one machine to a cluster", "", "usage: fairway VERB [flags]"]
    for title, _, group in GROUPS:
        lines += ["", f"{title}:"]
        for verb in group:
            aliases = f"  (also: {', '.join(verb.aliases)})" if verb.aliases else ""
            lines.append(f"  {verb.name:13}{verb.summary}{aliases}")
    lines += [
        "",
        "to start:",
        "  fairway run --workers 2 -- python train.py",
        "  fairway init --framework pytorch",
        "",
        "`fairway VERB --help` explains a verb.",
    ]
    return "\n".join(lines) + "\n"
