"""The entry point: finds the verb for a command line, and turns errors into exit codes.

0 done; 1 the run or operation failed; 2 bad usage or a bad document; 3 not found; 4 the engine cannot be
reached; 5 refused; 130 interrupted. No traceback is shown without `--debug`.
"""

from __future__ import annotations

import os
import sys

from fairway.cli import verb as cli_verb
from fairway.errors import FairwayError, SpecError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairway.cli.argument_parser import CliCommand

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return the exit code of the console script."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words[: words.index("--")] if "--" in words else "--debug" in words
    try:
        return _dispatch(words)
    except FairwayError as error:
        if debug:
            raise
        sys.stdout.flush()
        sys.stderr.write(_tell(error))
        return error.exit_code
    except KeyboardInterrupt:
        if debug:
            raise
        return INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe. Python must not flush to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OSError as error:
        if debug:
            raise
        sys.stderr.write(f"fairway: {error}\n  fix: --debug shows where it happened\n")
        return 1


def _tell(error: FairwayError) -> str:
    """Return the error as text. Each mistake of a document is on a line of its own and begins with its position, for editors."""
    if isinstance(error, SpecError):
        refusal = "" if all(mistake.path.startswith("--") for mistake in error.mistakes) else "the document was refused; "
        return f"{error}\nfairway: {refusal}nothing was changed\n"
    return f"fairway: {error}\n"


def _dispatch(given: list[str]) -> int:
    if not given or given[0] in ("--help", "-h", "help"):
        if len(given) > 1 and given[0] == "help":
            return _dispatch([*given[1:], "--help"])
        sys.stdout.write(cli_verb.overview())
        return 0
    if given[0] in ("--version", "-V"):
        given = ["version"]
    given = _verb_first(given)
    verb = cli_verb.find_verb(given[0])
    if verb is None:
        from fairway.cli.argument_parser import suggest

        names = [*cli_verb.VERBS, *cli_verb.ALIASES]
        if given[0] in cli_verb.HINTS:
            raise UsageError(f"no verb is called {given[0]!r}", fix=cli_verb.HINTS[given[0]])
        message = f"no verb is called {given[0]!r}{suggest(given[0], names)}"
        raise UsageError(message, fix="`fairway --help` lists the verbs")
    command, rest = _choose(verb, given[1:])
    if command is None:
        return 0
    from fairway.cli.argument_parser import help_text, parse

    options = parse(command, rest)
    if options.on("help"):
        sys.stdout.write(help_text(command))
        return 0
    try:
        return command.act(options)
    except SpecError as error:
        if command.name in ("run", "submit", "serve"):
            from fairway.cli.flag.job import name_flags

            name_flags(error, options)
        raise SpecError(list({str(mistake): mistake for mistake in error.mistakes}.values())) from error


def _verb_first(given: list[str]) -> list[str]:
    """Move common flags that are before the verb behind it: `fairway -n team list`."""
    flags: list[str] = []
    while given and given[0].startswith("-"):
        takes_next = given[0] in ("-n", "--namespace", "--context")
        flags += given[: 2 if takes_next else 1]
        given = given[2 if takes_next else 1 :]
    if not given:
        message = f"no verb in: fairway {' '.join(flags)}"
        raise UsageError(message, fix="`fairway --help` lists the verbs")
    return [given[0], *_after_parts(given[0], flags, given[1:])]


def _after_parts(name: str, flags: list[str], rest: list[str]) -> list[str]:
    verb = cli_verb.find_verb(name)
    return [rest[0], *flags, *rest[1:]] if verb and verb.parts and rest and not rest[0].startswith("-") else [*flags, *rest]


def _choose(verb: cli_verb.CommandVerb, rest: list[str]) -> tuple[CliCommand | None, list[str]]:
    """Return the command and its remaining arguments; the command is None if the help of the verb was printed."""
    commands = verb.load()
    if not verb.parts:
        return commands[""], rest
    kind, slash, name = rest[0].partition("/") if rest else ("", "", "")
    if slash and kind in commands:
        return commands[kind], [name, *rest[1:]]
    if rest and rest[0] in commands:
        return commands[rest[0]], rest[1:]
    lines = "".join(f"  fairway {command.name:20}{command.summary}\n" for command in commands.values())
    if rest and rest[0] in ("--help", "-h"):
        sys.stdout.write(f"{verb.summary}\n\n{lines}")
        return None, []
    if "" in commands and (not rest or rest[0].startswith("-")):
        return commands[""], rest
    if not rest:
        message = f"fairway {verb.name} needs one of: {', '.join(verb.parts)}"
        raise UsageError(message, fix=f"`fairway {verb.name} --help` describes them")
    from fairway.cli.argument_parser import suggest

    message = f"fairway {verb.name} has no {rest[0]!r}{suggest(rest[0], verb.parts)}"
    raise UsageError(message, fix=f"choose one of {', '.join(verb.parts)}")


if __name__ == "__main__":
    sys.exit(main())
