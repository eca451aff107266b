"""The grammar of a command: flags and words as data, the parser that reads them, and the help that they make.

The standard parser would be half of what a whole command may cost, knows no did-you-mean, and guesses
where `--` stands; this one is a table and sixty lines. Completion reads the same table.
"""

from __future__ import annotations

from fairway.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FORMATS = ("table", "wide", "json", "yaml", "name")
_COLUMN = 28


class Flag:
    """One option. Without `value` it is a switch; `many` collects each time it is given."""

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
        """`--stop-at-step` is `stop-at-step`."""
        return self.names[0].lstrip("-")

    def check(self, text: str) -> str:
        """The value, or a `UsageError` that says what it may be."""
        if self.choices and text not in self.choices:
            message = f"{self.names[0]} {text}: not one of {', '.join(self.choices)}{suggest(text, self.choices)}"
            raise UsageError(message)
        if self.number and not text.isdecimal():
            message = f"{self.names[0]} {text}: a whole number is needed"
            raise UsageError(message, fix=f"write for example {self.names[0]} 2")
        return text


class Word:
    """A positional argument: `NAME`, `[NAME]` when it may be left out, `NAME...` when there may be several."""

    def __init__(self, name: str, help: str, *, optional: bool = False, many: bool = False) -> None:
        self.name = name
        self.help = help
        self.optional = optional
        self.many = many

    def __str__(self) -> str:
        """As usage lines show it."""
        text = f"{self.name}..." if self.many else self.name
        return f"[{text}]" if self.optional else text


HELP = Flag("--help -h", "show this and do nothing")
DEBUG = Flag("--debug", "show where an error came from")
NAMESPACE = Flag("--namespace -n", "act in this namespace (FAIRWAY_NAMESPACE; default: default)", "NAME")
CONTEXT = Flag("--context", "act there for this command: local, or a context of the kubeconfig (FAIRWAY_CONTEXT)", "NAME")
COMMON = (NAMESPACE, CONTEXT, DEBUG, HELP)
FORMAT = Flag("--format -o --output", ", ".join(FORMATS), "FORMAT", choices=FORMATS)
FORMAT_SHORT = Flag("--format -o", ", ".join(FORMATS), "FORMAT", choices=FORMATS)
"""For verbs whose `--output` is something else."""
PLAN = Flag("--plan --dry-run", "print what would happen and why; change nothing")


class Command:
    """What a verb takes, and the function that does it."""

    def __init__(
        self,
        name: str,
        summary: str,
        act: Callable[[Options], int],
        *,
        words: tuple[Word, ...] = (),
        flags: tuple[Flag, ...] = (),
        rest: str = "",
        examples: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        """`run`, or `secret set`."""
        self.summary = summary
        self.act = act
        self.words = words
        self.flags = flags
        self.rest = rest
        """What may follow `--`; empty when nothing may."""
        self.examples = examples

    @property
    def all_flags(self) -> tuple[Flag, ...]:
        """Its own and those that every verb has."""
        return self.flags + COMMON

    def find(self, spelling: str) -> Flag:
        """The flag with this spelling, or a `UsageError` with the nearest one."""
        for flag in self.all_flags:
            if spelling in flag.names:
                return flag
        known = [name for flag in self.all_flags for name in flag.names]
        message = f"fairway {self.name} has no flag {spelling}{suggest(spelling, known)}"
        raise UsageError(
            message,
            fix=f"`fairway {self.name} --help` lists them",
        )

    @property
    def usage(self) -> str:
        """One line."""
        parts = ["fairway", self.name, *(str(word) for word in self.words), "[flags]"]
        return " ".join([*parts, f"[-- {self.rest}]"] if self.rest else parts)


class Options:
    """What was given: flags by key, words in order, and what followed `--`."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self.words: list[str] = []
        self.rest: list[str] = []
        self._given: dict[str, list[str]] = {}

    def add(self, flag: Flag, text: str) -> None:
        """Take a value; a flag that is not `many` keeps the last."""
        given = self._given.setdefault(flag.key, [])
        if not flag.many:
            given.clear()
        given.append(flag.check(text) if flag.value else "")

    def default(self, key: str, values: Sequence[str]) -> None:
        """Take values from a weaker source: only where the command line said nothing."""
        flag = self.command.find(f"--{key}")
        if key not in self._given:
            for value in values:
                self.add(flag, value)

    def on(self, key: str) -> bool:
        """Whether a switch was given."""
        return key in self._given

    def text(self, key: str, default: str = "") -> str:
        """The value of a flag."""
        given = self._given.get(key)
        return given[-1] if given else default

    def number(self, key: str) -> int | None:
        """The value of a flag that counts; None when it was not given."""
        given = self._given.get(key)
        return int(given[-1]) if given else None

    def many(self, key: str) -> list[str]:
        """Every value of a flag that may be given again."""
        return self._given.get(key, [])

    def pairs(self, key: str) -> dict[str, str]:
        """The values of a flag of the form `K=V`."""
        found = {}
        for text in self.many(key):
            name, mark, value = text.partition("=")
            if not mark or not name:
                message = f"--{key} {text}: a name and a value are needed"
                raise UsageError(message, fix=f"write --{key} NAME=VALUE")
            found[name] = value
        return found

    def word(self, position: int = 0) -> str:
        """A positional argument; empty when it was left out."""
        return self.words[position] if position < len(self.words) else ""


def parse(command: Command, arguments: Sequence[str]) -> Options:
    """Read a command line. Flags may stand anywhere before `--`."""
    options = Options(command)
    left = list(arguments)
    while left:
        text = left.pop(0)
        if text == "--":
            options.rest = left
            break
        if text.startswith("--"):
            _read_long(command, options, text, left)
        elif text.startswith("-") and len(text) > 1:
            _read_short(command, options, text, left)
        else:
            options.words.append(text)
    if not options.on(HELP.key):
        _check_words(command, options)
    return options


def _read_long(command: Command, options: Options, text: str, left: list[str]) -> None:
    spelling, mark, value = text.partition("=")
    flag = command.find(spelling)
    if flag.value:
        options.add(flag, value if mark else _take(flag, left))
    elif mark:
        message = f"{text}: {spelling} takes no value"
        raise UsageError(message, fix=f"write {spelling}")
    else:
        options.add(flag, "")


def _read_short(command: Command, options: Options, text: str, left: list[str]) -> None:
    """`-n NAME`, `-nNAME`, and several switches at once: `-it`."""
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


def _take(flag: Flag, left: list[str]) -> str:
    if not left or left[0] == "--":
        message = f"{flag.names[0]} needs a value"
        raise UsageError(message, fix=f"write {flag.names[0]} {flag.value}")
    return left.pop(0)


def _check_words(command: Command, options: Options) -> None:
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
        message = f"fairway {command.name}: {extra!r} is one word too many"
        raise UsageError(message, fix=hint)
    if options.rest and not command.rest:
        message = f"fairway {command.name} takes nothing after `--`"
        raise UsageError(message, fix=f"usage: {command.usage}")


def suggest(text: str, known: Sequence[str]) -> str:
    """`; did you mean X?`, or nothing when nothing is near."""
    import difflib

    near = difflib.get_close_matches(text, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def help_text(command: Command) -> str:
    """The help of one command."""
    lines = [command.summary, "", f"usage: {command.usage}"]
    if command.words:
        lines += ["", *(_entry(str(word), word.help) for word in command.words)]
    for title, flags in (("flags", command.flags), ("common flags", COMMON)):
        if flags:
            lines += ["", f"{title}:", *(_entry(_spellings(flag), flag.help) for flag in flags)]
    if command.examples:
        lines += ["", "examples:", *(f"  {example}" for example in command.examples)]
    return "\n".join(lines) + "\n"


def _spellings(flag: Flag) -> str:
    names = ", ".join(sorted(flag.names, key=len))
    return f"{names} {flag.value}" if flag.value else names


def _entry(head: str, text: str) -> str:
    if len(head) > _COLUMN - 2:
        return f"  {head}\n  {'':{_COLUMN}}{text}"
    return f"  {head:{_COLUMN}}{text}"
