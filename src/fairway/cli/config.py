"""`fairway config`: the defaults in force and the source of each."""

from __future__ import annotations

import os

from fairway.cli import contexts
from fairway.cli.defaults import Defaults
from fairway.cli.grammar import FORMAT, Command, Options
from fairway.cli.session import show_line, write_json
from fairway.sdk import place


def config(options: Options) -> int:
    """Print each setting with its value and its source. Every file is checked completely."""
    settings = Defaults.read(os.getcwd())
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
    return "home", place.find_home(), place.HOME if os.environ.get(place.HOME) else "default"


def _text(settings: Defaults, key: str) -> tuple[str, str, str]:
    variable = f"FAIRWAY_{key.upper()}"
    if os.environ.get(variable):
        return key, os.environ[variable], variable
    value, path = settings.find(key)
    if value:
        return key, value, path
    stored_context = contexts.remembered()[0]
    if key == "context" and stored_context != contexts.LOCAL:
        return key, stored_context, "fairway use"
    return key, contexts.LOCAL if key == "context" else "default", "default"


COMMANDS = {
    "": Command(
        "config",
        "Show the effective defaults and where each comes from. Flags override the environment, which overrides fairway.toml "
        "in this folder, which overrides your own file, ~/.config/fairway/config.toml (XDG_CONFIG_HOME moves it).",
        config,
        flags=(FORMAT,),
    )
}
