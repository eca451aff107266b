"""Defaults from files: `fairway.toml` next to the code, then the user's own file. Flags and the environment override both.

namespace = "team-nlp"
[run]                    # or [submit], [logs] ...: the flags of a verb, without the dashes
workers = 2
env = ["BATCH=64"]
"""

from __future__ import annotations

import os

from fairway.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from fairway.cli.argument_parser import CommandOptions

FILE = "fairway.toml"
USER_FILE = "config.toml"
_TEXTS = ("namespace", "context")


def user_file() -> str:
    """Return the path of the user's own file: `fairway/config.toml` in the XDG configuration folder."""
    folder = os.environ.get("XDG_CONFIG_HOME", "") or os.path.expanduser("~/.config")
    return os.path.join(folder, "fairway", USER_FILE)


class CommandDefaults:
    """The contents of the existing files, highest precedence first."""

    def __init__(self, files: list[tuple[str, dict[str, Any]]]) -> None:
        self._files = files

    @classmethod
    def read(cls, folder: str) -> CommandDefaults:
        """Read the folder's file and the user's file. A mistake in either raises an error; it is never ignored."""
        paths = (os.path.join(folder, FILE), user_file())
        return cls([(path, _read(path)) for path in paths if os.path.exists(path)])

    def find(self, key: str) -> tuple[str, str]:
        """Return a top-level setting and its file; both are empty if no file has the setting."""
        for path, content in self._files:
            if content.get(key):
                return str(content[key]), path
        return "", ""

    def text(self, key: str) -> str:
        """Return a top-level setting; empty if no file has it."""
        return self.find(key)[0]

    def fill(self, options: CommandOptions) -> None:
        """Set the flags of this verb that are not on the command line to the values of the files; the first file wins."""
        verb = options.command.name.partition(" ")[0]
        for path, content in self._files:
            for key, values in _flags(content.get(verb, {})):
                try:
                    options.default(key, values)
                except UsageError as error:
                    message = f"{path}: [{options.command.name}] {error.message}"
                    raise UsageError(message, fix=error.fix) from error

    def flags(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield verb, flag, value and file of every default in force."""
        yielded = set()
        for path, content in self._files:
            for verb in [key for key in content if key not in _TEXTS]:
                for key, values in _flags(content[verb]):
                    if (verb, key) not in yielded:
                        yielded.add((verb, key))
                        yield verb, key, ", ".join(values) or "on", path

    def check(self) -> None:
        """Refuse a flag that no command of its verb has. Only `config` calls this: other verbs check only their own section."""
        from fairway.cli.verb import VERBS

        for path, content in self._files:
            for verb in [key for key in content if key not in _TEXTS]:
                commands = list(VERBS[verb].load().values())
                flag_keys = {flag.key for command in commands for flag in command.all_flags}
                for key, _ in _flags(content[verb]):
                    if key not in flag_keys:
                        from fairway.cli.argument_parser import suggest

                        message = f"{path}: [{verb}] {key}: fairway {verb} has no such flag{suggest(key, sorted(flag_keys))}"
                        raise UsageError(message, fix=f"`fairway {verb} --help` lists the flags")


def _read(path: str) -> dict[str, Any]:
    import tomllib

    from fairway.cli.argument_parser import suggest
    from fairway.cli.verb import VERBS

    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except (OSError, ValueError) as error:
        message = f"{path}: {error}"
        raise UsageError(message, fix="correct the file or remove it") from error
    settings = (*_TEXTS, *VERBS)
    for key, value in content.items():
        if key not in settings:
            message = f"{path}: {key}: there is no such setting{suggest(key, settings)}"
            raise UsageError(message, fix=f"the settings are {', '.join(_TEXTS)} and [VERB]")
        if isinstance(value, dict) != (key not in _TEXTS):
            message = f"{path}: {key} = {value!r}: the value has the wrong form"
            raise UsageError(
                message,
                fix=f'write {key} = "NAME"' if key in _TEXTS else f"write [{key}] and its flags below it",
            )
    return content


def _flags(section: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield the flags of one section of a file, with their values as on the command line."""
    for key, value in section.items():
        if value is False:
            continue
        values = (
            value if isinstance(value, list) else [f"{k}={v}" for k, v in value.items()] if isinstance(value, dict) else [value]
        )
        yield key.replace("_", "-"), ["" if item is True else str(item) for item in values]
