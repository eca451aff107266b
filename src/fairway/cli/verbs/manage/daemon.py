"""`fairway daemon`: status, start and stop of the daemon."""

from __future__ import annotations

from fairway.cli.argument_parser import FORMAT, PLAN, CliCommand, CommandOptions
from fairway.cli.session import CommandSession, say, write, write_json
from fairway.errors import UnavailableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def status(options: CommandOptions) -> int:
    """Print whether the daemon runs, and where. Does not start it."""
    session = CommandSession(options, here=True)
    state = read_status(session)
    _show(session, state)
    return 0 if state["running"] else 4


def start(options: CommandOptions) -> int:
    """Start the daemon unless it is running."""
    session = CommandSession(options, here=True)
    if options.on("plan"):
        running = session.here.answers()
        say("the daemon is already running" if running else f"a daemon would be started for {session.here.home}")
        return 0
    session.here.start()
    _show(session, read_status(session))
    return 0


def stop(options: CommandOptions) -> int:
    """Stop the daemon. Tasks keep running; the next command starts the daemon again."""
    session = CommandSession(options, here=True)
    state = read_status(session)
    if not state["running"]:
        say(f"no daemon runs for {session.here.home}")
        return 0
    if options.on("plan"):
        say(f"the daemon (pid {state['pid']}) would be stopped; tasks would keep running")
        return 0
    session.here.stop(int(state["pid"]))
    say(f"the daemon (pid {state['pid']}) has stopped; tasks keep running; the next command starts the daemon again")
    return 0


def read_status(session: CommandSession) -> dict[str, Any]:
    """Return the daemon's state, without starting it."""
    import json

    paths = {"home": session.here.home, "socket": session.here.socket, "log": session.here.log}
    try:
        health = json.loads(session.here.request("GET", "/v1/health", start=False).read())
    except UnavailableError:
        return {"running": False, "pid": None, "version": None, **paths}
    return {"running": True, **paths, **health}


def _show(session: CommandSession, known: dict[str, Any]) -> None:
    if session.output == "json":
        write_json(known)
    elif session.output == "name":
        write(f"{known['pid'] or ''}\n".encode())
    else:
        rows = {
            name: ("yes" if value is True else "no" if value is False else value)
            for name, value in known.items()
            if value is not None
        }
        width = max(len(name) for name in rows)
        mark = ":" if session.output == "yaml" else " "
        write("".join(f"{name + mark:{width + 1}} {value}\n" for name, value in rows.items()).encode())


COMMANDS = {
    "status": CliCommand(
        "daemon status",
        "Show whether the daemon is running, and where. The exit code is 4 if it is not.",
        status,
        flags=(FORMAT,),
    ),
    "start": CliCommand(
        "daemon start", "Start the daemon; every other command does it when needed.", start, flags=(PLAN, FORMAT)
    ),
    "stop": CliCommand("daemon stop", "Stop the daemon. Tasks keep running.", stop, flags=(PLAN,)),
}
