"""`fairway version`: the version of Fairway."""

from __future__ import annotations

import os
import sys

import fairway
from fairway.cli.argument_parser import FORMAT, CliCommand, CommandOptions
from fairway.cli.session import write, write_json
from fairway.version import VERSION


def version(options: CommandOptions) -> int:
    """Print the version; with `-o json` also the interpreter and the package's folder."""
    if options.text("format") == "json":
        package_folder = os.path.dirname(os.path.abspath(fairway.__file__))
        write_json(
            {"version": VERSION, "python": sys.version.split()[0], "executable": sys.executable, "package": package_folder}
        )
    else:
        write(f"fairway {VERSION}\n".encode())
    return 0


COMMANDS = {"": CliCommand("version", "Print the version.", version, flags=(FORMAT,))}
