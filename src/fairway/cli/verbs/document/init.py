"""`fairway init`: create a first training job that runs unchanged."""

from __future__ import annotations

import os

from fairway.cli.argument_parser import PLAN, CliCommand, CommandFlag, CommandOptions, PositionalArgument
from fairway.cli.session import say, show_line
from fairway.errors import ConflictError, UsageError

FRAMEWORKS = ("pytorch", "tensorflow", "jax", "mpi", "command")
_NEEDS = {"pytorch": "torch", "tensorflow": "tensorflow", "jax": "jax numpy", "mpi": "mpi4py numpy (and an MPI such as Open MPI)"}
_DOCUMENT = """\
# fairway run job.yaml       runs it now and shows its output
# fairway submit job.yaml    queues it; each submit is a new run: {name}-1, {name}-2 ...
kind: TrainingJob
name: {name}
framework: {framework}
code: .
roles:
  worker:
    replicas: 2
    command: python train.py
checkpoint: {{every: 1m, keep: 3}}
restart: {{max: 3}}
outputs: {outputs}
timeout: 1h
"""
_MODEL = "{{model: {name}}}       # the export by fairway.export becomes a version: fairway model list"
_WEIGHTS = "{{weights: {name}}}     # the content of $FAIRWAY_OUTPUT_WEIGHTS is kept"


def init(options: CommandOptions) -> int:
    """Write train.py and job.yaml; existing files are never touched."""
    from fairway.units import names

    framework = options.text("framework", "pytorch")
    folder = options.word() or "."
    name = options.text("name") or names.suggest_name(os.path.basename(os.path.abspath(folder)))
    try:
        names.check_name(name)
    except ValueError as error:
        message = f"--name {name} {error}"
        raise UsageError(message) from None
    outputs = (_MODEL if framework == "pytorch" else _WEIGHTS).format(name=name)
    document = _DOCUMENT.format(name=name, framework=framework, outputs=outputs)
    files = {"train.py": _read_template(framework), "job.yaml": document}
    existing = [path for path in (os.path.join(folder, file) for file in files) if os.path.lexists(path)]
    if existing:
        message = f"{', '.join(existing)}: already present; nothing was written"
        raise ConflictError(message, fix=f"choose another folder: fairway init {name}-2")
    if options.on("plan"):
        show_line("\n".join(f"{os.path.join(folder, file)} would be written" for file in files))
        return 0
    os.makedirs(folder, exist_ok=True)
    for file, text in files.items():
        # "x": another process may have created the file since the check.
        with open(os.path.join(folder, file), "x", encoding="utf-8") as target:
            target.write(text)
        show_line(os.path.join(folder, file))
    needs = f" (it needs {_NEEDS[framework]} installed for your `python`)" if framework in _NEEDS else ""
    go = f"cd {folder} && " if folder != "." else ""
    say(f"run it{needs}: {go}fairway run job.yaml")
    return 0


def _read_template(framework: str) -> str:
    path = os.path.join(os.path.dirname(__file__), "templates", f"{framework}.py.txt")
    with open(path, encoding="utf-8") as file:
        return file.read()


COMMANDS = {
    "": CliCommand(
        "init",
        "Write train.py and job.yaml: a first training job, ready to run.",
        init,
        words=(PositionalArgument("FOLDER", "where to write (default: here)", optional=True),),
        flags=(
            CommandFlag("--framework", f"{', '.join(FRAMEWORKS)} (default: pytorch)", "NAME", choices=FRAMEWORKS),
            CommandFlag("--name", "the job's name (default: the folder's)", "NAME"),
            PLAN,
        ),
        examples=("fairway init --framework jax my-first-job",),
    )
}
