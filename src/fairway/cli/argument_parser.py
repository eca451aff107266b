"""The grammar of a command: flags and words as data, the parser that reads them, and the help made from them.

Importing `argparse` would take half of a command's time budget; it offers no did-you-mean and guesses the position
of `--`. This parser is a table and sixty lines. Completion reads the same table.
"""

from __future__ import annotations

from fairway.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FORMATS = ("table", "wide", "json", "yaml", "name")
_COLUMN = 28


class CommandFlag:
    """An option. Without `value` it is a switch; with `many` it collects the value of each occurrence."""

    def __init__(
        self, names: str, help: str, value: str = "", *, many: bool = False, choices: tuple[str, ...] = (), number: bool = False
    ) -> None:
        self.names = tuple(names.split())
        """All spellings; the first is the flag's name."""
        self.help = help
        self.value = value
        self.many = many
        self.choices = choices
        self.number = number

    @property
    def key(self) -> str:
        """The flag's name without dashes: `stop-at-step`."""
        return self.names[0].lstrip("-")

    def check(self, text: str) -> str:
        """Return the value, or raise a `UsageError` that names the allowed values."""
        if self.choices and text not in self.choices:
            message = f"{self.names[0]} {text}: not one of {', '.join(self.choices)}{suggest(text, self.choices)}"
            raise UsageError(message)
        if self.number and not text.isdecimal():
            message = f"{self.names[0]} {text}: a whole number is needed"
            raise UsageError(message, fix=f"write for example {self.names[0]} 2")
        return text


class PositionalArgument:
    """A positional argument: `NAME`, `[NAME]` if optional, `NAME...` if it may be repeated."""

    def __init__(self, name: str, help: str, *, optional: bool = False, many: bool = False) -> None:
        self.name = name
        self.help = help
        self.optional = optional
        self.many = many

    def __str__(self) -> str:
        """Return the argument as shown in usage lines."""
        text = f"{self.name}..." if self.many else self.name
        return f"[{text}]" if self.optional else text


HELP = CommandFlag("--help -h", "show this help")
DEBUG = CommandFlag("--debug", "show the traceback of an error")
NAMESPACE = CommandFlag("--namespace -n", "use this namespace (FAIRWAY_NAMESPACE; default: default)", "NAME")
CONTEXT = CommandFlag(
    "--context", "use this context for this command: local, or a context of the kubeconfig (FAIRWAY_CONTEXT)", "NAME"
)
COMMON = (NAMESPACE, CONTEXT, DEBUG, HELP)
FORMAT = CommandFlag("--format -o --output", ", ".join(FORMATS), "FORMAT", choices=FORMATS)
FORMAT_SHORT = CommandFlag("--format -o", ", ".join(FORMATS), "FORMAT", choices=FORMATS)
"""For verbs whose `--output` has another meaning."""
PLAN = CommandFlag("--plan --dry-run", "print what would happen and why; change nothing")


class CliCommand:
    """The flags and words of a command, and the function that runs it."""

    def __init__(
        self,
        name: str,
        summary: str,
        act: Callable[[CommandOptions], int],
        *,
        words: tuple[PositionalArgument, ...] = (),
        flags: tuple[CommandFlag, ...] = (),
        rest: str = "",
        examples: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        """The name with its second word, if any: `run` or `secret set`."""
        self.summary = summary
        self.act = act
        self.words = words
        self.flags = flags
        self.rest = rest
        """Placeholder for the words after `--`; empty if none are allowed."""
        self.examples = examples

    @property
    def all_flags(self) -> tuple[CommandFlag, ...]:
        """The command's own flags and the common flags."""
        return self.flags + COMMON

    def find(self, spelling: str) -> CommandFlag:
        """Return the flag with this spelling, or raise a `UsageError` that suggests the nearest one."""
        for flag in self.all_flags:
            if spelling in flag.names:
                return flag
        spellings = [name for flag in self.all_flags for name in flag.names]
        message = f"fairway {self.name} has no flag {spelling}{suggest(spelling, spellings)}"
        raise UsageError(
            message,
            fix=f"`fairway {self.name} --help` lists the flags",
        )

    @property
    def usage(self) -> str:
        """The usage line."""
        parts = ["fairway", self.name, *(str(word) for word in self.words), "[flags]"]
        return " ".join([*parts, f"[-- {self.rest}]"] if self.rest else parts)


class CommandOptions:
    """A parsed command line: flags by key, words in order, and the words after `--`."""

    def __init__(self, command: CliCommand) -> None:
        self.command = command
        self.words: list[str] = []
        self.rest: list[str] = []
        self._given: dict[str, list[str]] = {}

    def add(self, flag: CommandFlag, text: str) -> None:
        """Add a value; a flag that is not `many` keeps only the last."""
        values = self._given.setdefault(flag.key, [])
        if not flag.many:
            values.clear()
        values.append(flag.check(text) if flag.value else "")

    def default(self, key: str, values: Sequence[str]) -> None:
        """Set values from a source of lower precedence; ignored if the command line has the flag."""
        flag = self.command.find(f"--{key}")
        if key not in self._given:
            for value in values:
                self.add(flag, value)

    def on(self, key: str) -> bool:
        """Whether the flag was given."""
        return key in self._given

    def text(self, key: str, default: str = "") -> str:
        """Return the value of a flag."""
        values = self._given.get(key)
        return values[-1] if values else default

    def number(self, key: str) -> int | None:
        """Return the value of a numeric flag; None if it was not given."""
        values = self._given.get(key)
        return int(values[-1]) if values else None

    def many(self, key: str) -> list[str]:
        """Return all values of a repeatable flag."""
        return self._given.get(key, [])

    def pairs(self, key: str) -> dict[str, str]:
        """Return the values of a repeatable flag of the form `K=V` as a dictionary."""
        by_name = {}
        for text in self.many(key):
            name, mark, value = text.partition("=")
            if not mark or not name:
                message = f"--{key} {text}: a name and a value are needed"
                raise UsageError(message, fix=f"write --{key} NAME=VALUE")
            by_name[name] = value
        return by_name

    def word(self, position: int = 0) -> str:
        """Return a positional argument; empty if it was not given."""
        return self.words[position] if position < len(self.words) else ""


def parse(command: CliCommand, arguments: Sequence[str]) -> CommandOptions:
    """Parse a command line. Flags may appear anywhere before `--`."""
    options = CommandOptions(command)
    remaining = list(arguments)
    while remaining:
        text = remaining.pop(0)
        if text == "--":
            options.rest = remaining
            break
        if text.startswith("--"):
            _read_long(command, options, text, remaining)
        elif text.startswith("-") and len(text) > 1:
            _read_short(command, options, text, remaining)
        else:
            options.words.append(text)
    if not options.on(HELP.key):
        _check_words(command, options)
    return options


def _read_long(command: CliCommand, options: CommandOptions, text: str, left: list[str]) -> None:
    spelling, mark, value = text.partition("=")
    flag = command.find(spelling)
    if flag.value:
        options.add(flag, value if mark else _take(flag, left))
    elif mark:
        message = f"{text}: {spelling} takes no value"
        raise UsageError(message, fix=f"write {spelling}")
    else:
        options.add(flag, "")


def _read_short(command: CliCommand, options: CommandOptions, text: str, left: list[str]) -> None:
    """Parse `-n NAME`, `-nNAME`, or several switches at once: `-it`."""
    if any(text in flag.names for flag in command.all_flags):
        flag = command.find(text)
        options.add(flag, _take(flag, left) if flag.value else "")
        return
    for position in range(1, len(text)):
        flag = command.find(f"-{text[position]}")
        if flag.value:
            options.add(flag, text[position + 1 :].removeprefix("=") or _take(flag, left))
            return
        options.add(flag, "")


def _take(flag: CommandFlag, left: list[str]) -> str:
    if not left or left[0] == "--":
        message = f"{flag.names[0]} needs a value"
        raise UsageError(message, fix=f"write {flag.names[0]} {flag.value}")
    return left.pop(0)


def _check_words(command: CliCommand, options: CommandOptions) -> None:
    needed = [word for word in command.words if not word.optional]
    if len(options.words) < len(needed):
        missing = needed[len(options.words)]
        message = f"fairway {command.name}: {missing.name} is missing: {missing.help}"
        raise UsageError(message, fix=f"usage: {command.usage}")
    if len(options.words) > len(command.words) and not any(word.many for word in command.words):
        extra = options.words[len(command.words)]
        hint = (
            f"put `--` before the command: fairway {command.name} -- {' '.join(options.words)}"
            if command.rest
            else f"usage: {command.usage}"
        )
        message = f"fairway {command.name}: unexpected argument {extra!r}"
        raise UsageError(message, fix=hint)
    if options.rest and not command.rest:
        message = f"fairway {command.name} takes nothing after `--`"
        raise UsageError(message, fix=f"usage: {command.usage}")


def suggest(text: str, known: Sequence[str]) -> str:
    """Return `; did you mean X?`, or an empty text if no known word is similar."""
    import difflib

    near = difflib.get_close_matches(text, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def help_text(command: CliCommand) -> str:
    """Return the help of one command."""
    lines = [command.summary, "", f"usage: {command.usage}"]
    if command.words:
        lines += ["", *(_entry(str(word), word.help) for word in command.words)]
    for title, flags in (("flags", command.flags), ("common flags", COMMON)):
        if flags:
            lines += ["", f"{title}:", *(_entry(_spellings(flag), flag.help) for flag in flags)]
    if command.examples:
        lines += ["", "examples:", *(f"  {example}" for example in command.examples)]
    return "\n".join(lines) + "\n"


def _spellings(flag: CommandFlag) -> str:
    names = ", ".join(sorted(flag.names, key=len))
    return f"{names} {flag.value}" if flag.value else names


def _entry(head: str, text: str) -> str:
    if len(head) > _COLUMN - 2:
        return f"  {head}\n  {'':{_COLUMN}}{text}"
    return f"  {head:{_COLUMN}}{text}"
