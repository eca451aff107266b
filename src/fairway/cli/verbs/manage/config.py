"""`fairway config`: the defaults in force and the source of each."""

from __future__ import annotations

import os

from fairway.cli import context
from fairway.cli.argument_parser import FORMAT, CliCommand, CommandOptions
from fairway.cli.default_file import CommandDefaults
from fairway.cli.session import show_line, write_json
from fairway.sdk.transport import local_path


def config(options: CommandOptions) -> int:
    """Print each setting with its value and its source. Every file is checked completely."""
    settings = CommandDefaults.read(os.getcwd())
    settings.check()
    rows = [_home(), *(_text(settings, key) for key in ("namespace", "context"))]
    rows += [(f"{verb} --{flag}", value, path) for verb, flag, value, path in settings.flags()]
    if options.text("format") == "json":
        write_json([{"setting": name, "value": value, "source": source} for name, value, source in rows])
        return 0
    width = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, value, source in rows:
        show_line(f"{name:{width[0]}}  {value:{width[1]}}  {source}")
    return 0


def _home() -> tuple[str, str, str]:
    return "home", local_path.find_home(), local_path.HOME if os.environ.get(local_path.HOME) else "default"


def _text(settings: CommandDefaults, key: str) -> tuple[str, str, str]:
    variable = f"FAIRWAY_{key.upper()}"
    if os.environ.get(variable):
        return key, os.environ[variable], variable
    value, path = settings.find(key)
    if value:
        return key, value, path
    stored_context = context.remembered()[0]
    if key == "context" and stored_context != context.LOCAL:
        return key, stored_context, "fairway use"
    return key, context.LOCAL if key == "context" else "default", "default"


COMMANDS = {
    "": CliCommand(
        "config",
        "Show the effective defaults and where each comes from. Flags override the environment, which overrides fairway.toml "
        "in this folder, which overrides your own file, ~/.config/fairway/config.toml (XDG_CONFIG_HOME moves it).",
        config,
        flags=(FORMAT,),
    )
}
