"""Defaults from a `fairway.toml` next to the code. Flags win over the environment, the environment over this file.

namespace = "team-nlp"
[run]                    # or [submit], [logs] ...: the flags of a verb, without the dashes
workers = 2
env = ["BATCH=64"]
"""

from __future__ import annotations

import os

from fairway.cli.grammar import suggest
from fairway.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fairway.cli.grammar import Options

FILE = "fairway.toml"
_TEXTS = ("namespace", "context")


class Defaults:
    """The content of the file; empty when there is none."""

    def __init__(self, path: str, content: dict[str, Any]) -> None:
        self.path = path
        self._content = content

    @classmethod
    def read(cls, folder: str) -> Defaults:
        """Read the folder's file. A mistake in it is an error, never ignored."""
        path = os.path.join(folder, FILE)
        if not os.path.exists(path):
            return cls(path, {})
        import tomllib

        from fairway.cli.verbs import VERBS

        try:
            with open(path, "rb") as file:
                content = tomllib.load(file)
        except (OSError, ValueError) as error:
            message = f"{path}: {error}"
            raise UsageError(message, fix="correct the file or remove it") from error
        known = (*_TEXTS, *VERBS)
        for key, value in content.items():
            if key not in known:
                message = f"{path}: {key}: not a setting{suggest(key, known)}"
                raise UsageError(message, fix=f"the settings are {', '.join(_TEXTS)} and [VERB]")
            if isinstance(value, dict) != (key not in _TEXTS):
                message = f"{path}: {key} = {value!r}"
                raise UsageError(
                    message,
                    fix=f'write {key} = "NAME"' if key in _TEXTS else f"write [{key}] and flags below it",
                )
        return cls(path, content)

    def text(self, key: str) -> str:
        """A setting at the top of the file."""
        return str(self._content.get(key, ""))

    def fill(self, options: Options) -> None:
        """Give flags of this verb the values of the file where the command line said nothing."""
        section = self._content.get(options.command.name.partition(" ")[0], {})
        for key, value in section.items():
            if value is False:
                continue
            values = (
                value
                if isinstance(value, list)
                else [f"{k}={v}" for k, v in value.items()]
                if isinstance(value, dict)
                else [value]
            )
            try:
                options.default(key.replace("_", "-"), ["" if one is True else str(one) for one in values])
            except UsageError as error:
                message = f"{self.path}: [{options.command.name}] {error.message}"
                raise UsageError(message, fix=error.fix) from error
