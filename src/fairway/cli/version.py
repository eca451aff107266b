"""`fairway version`."""

from __future__ import annotations

import os
import sys

from fairway.cli.grammar import FORMAT, Command, Options
from fairway.cli.session import write, write_json
from fairway.version import VERSION


def version(options: Options) -> int:
    """Print the version; `-o json` tells of the interpreter too."""
    if options.text("format") == "json":
        where = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        write_json({"version": VERSION, "python": sys.version.split()[0], "executable": sys.executable, "package": where})
    else:
        write(f"fairway {VERSION}\n".encode())
    return 0


COMMANDS = {"": Command("version", "Print the version.", version, flags=(FORMAT,))}
