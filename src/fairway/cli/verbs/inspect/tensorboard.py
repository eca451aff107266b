"""`fairway tensorboard`: TensorBoard over a run's event files."""

from __future__ import annotations

import os

from fairway.cli.address import job_path
from fairway.cli.argument_parser import PLAN, CliCommand, CommandFlag, CommandOptions, PositionalArgument
from fairway.cli.session import CommandSession, say, show_line
from fairway.errors import NotFoundError, RefusedError
from fairway.sdk.submission import document


def tensorboard(options: CommandOptions) -> int:
    """Replace this process by TensorBoard of the caller's environment."""
    session = CommandSession(options)
    if session.cluster is not None:
        message = "the event files are with the run's pods, not on this machine"
        fix = "`tensorboard: {serve: true}` in the document runs TensorBoard on the cluster; `fairway metrics` prints the metrics"
        raise RefusedError(message, fix=fix)
    log_folders = [
        f"{job['name']}:{job['folder']}/tensorboard" for job in (session.fetch(job_path(name)) for name in options.words)
    ]
    missing = [log_folder for log_folder in log_folders if not os.path.isdir(log_folder.partition(":")[2])]
    if missing:
        message = f"no event files: {missing[0].partition(':')[2]}"
        raise NotFoundError(message, fix="write them to $FAIRWAY_TENSORBOARD_DIR")
    program = _find_program()
    python = document.find_python()
    if not program:
        message = f"TensorBoard is not installed for {python}"
        raise RefusedError(message, fix=f"{python} -m pip install tensorboard")
    log_flags = (
        ["--logdir", log_folders[0].partition(":")[2]] if len(log_folders) == 1 else ["--logdir_spec", ",".join(log_folders)]
    )
    command = [program, *log_flags, "--port", options.text("port", "6006"), "--host", options.text("host", "localhost")]
    if not options.on("plan"):
        say(f"TensorBoard over {', '.join(options.words)}; Ctrl-C ends it")
        os.execv(program, command)
    show_line(" ".join(command))
    return 0


def _find_program() -> str:
    folders = [os.path.dirname(document.find_python()), *os.environ.get("PATH", "").split(os.pathsep)]
    candidates = (os.path.join(folder, "tensorboard") for folder in folders if folder)
    return next((path for path in candidates if os.access(path, os.X_OK)), "")


COMMANDS = {
    "": CliCommand(
        "tensorboard",
        "Open TensorBoard over all workers of a run, or over several runs.",
        tensorboard,
        words=(PositionalArgument("NAME", "a run, or a series for its newest run", many=True),),
        flags=(
            CommandFlag("--port", "the port to listen on (default: 6006)", "N", number=True),
            CommandFlag("--host", "the address to listen on (default: localhost)", "ADDRESS"),
            PLAN,
        ),
        examples=("fairway tensorboard mnist", "fairway tensorboard mnist-6 mnist-7"),
    )
}
