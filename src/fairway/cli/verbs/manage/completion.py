"""`fairway completion`: shell completion, generated from the same table as the help."""

from __future__ import annotations

from fairway.cli.argument_parser import CliCommand, CommandOptions
from fairway.cli.session import write
from fairway.cli.verb import ALIASES, VERBS, CommandVerb

_NAMES = {"job": "fairway list -o name 2>/dev/null", "secret": "fairway secret list -o name 2>/dev/null"}
"""The commands by which the shell lists the names of jobs and secrets."""


def bash(_options: CommandOptions) -> int:
    """Print a script for bash."""
    cases = "\n".join(
        f"    {'|'.join([verb.name, *verb.aliases])}) flags='{_flags(verb)}' words=\"{_words(verb)}\" ;;"
        for verb in VERBS.values()
    )
    write(_BASH.replace("@CASES@", cases).replace("@VERBS@", " ".join([*VERBS, *ALIASES])).encode())
    return 0


def zsh(_options: CommandOptions) -> int:
    """Print a script for zsh."""
    verbs = "\n".join(f"    '{name}:{_quoted(verb.summary)}'" for name, verb in _spellings().items())
    cases = "\n".join(
        f"    {'|'.join([verb.name, *verb.aliases])}) flags=({_flags(verb)}) words_of=({_words(verb)}) ;;"
        for verb in VERBS.values()
    )
    write(_ZSH.replace("@VERBS@", verbs).replace("@CASES@", cases).encode())
    return 0


def fish(_options: CommandOptions) -> int:
    """Print a script for fish."""
    lines = ["complete -c fairway -f"]
    for name, verb in _spellings().items():
        lines.append(f"complete -c fairway -n __fish_use_subcommand -a {name} -d '{_quoted(verb.summary)}'")
        condition = f"-n '__fish_seen_subcommand_from {name}'"
        if verb.names == "file":
            lines.append(f"complete -c fairway {condition} -F")
        elif _words(verb):
            lines.append(f"complete -c fairway {condition} -a '{_words(verb).replace('$(', '(')}'")
        for flag in {
            spelling: option for command in verb.load().values() for option in command.all_flags for spelling in option.names
        }.items():
            spelling, option = flag
            kind = f"-l {spelling[2:]}" if spelling.startswith("--") else f"-s {spelling[1:]}"
            value = f" -x -a '{' '.join(option.choices)}'" if option.choices else " -r" if option.value else ""
            lines.append(f"complete -c fairway {condition} {kind}{value} -d '{_quoted(option.help)}'")
    write(("\n".join(lines) + "\n").encode())
    return 0


def _spellings() -> dict[str, CommandVerb]:
    return {**VERBS, **{alias: VERBS[name] for alias, name in ALIASES.items()}}


def _flags(verb: CommandVerb) -> str:
    spellings = {name: None for command in verb.load().values() for flag in command.all_flags for name in flag.names}
    return " ".join(name for name in spellings if name.startswith("--"))


def _words(verb: CommandVerb) -> str:
    if verb.parts:
        return " ".join(verb.parts)
    return f"$({_NAMES[verb.names]})" if verb.names in _NAMES else ""


def _quoted(text: str) -> str:
    return text.replace("'", "").replace(":", ";")


_BASH = """\
# fairway completion for bash:  source <(fairway completion bash)
_fairway() {
  local cur="${COMP_WORDS[COMP_CWORD]}" verb="${COMP_WORDS[1]}" flags="" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "@VERBS@" -- "$cur"))
    return
  fi
  case "$verb" in
@CASES@
  esac
  case "$cur" in
    -*) COMPREPLY=($(compgen -W "$flags" -- "$cur")) ;;
    *) COMPREPLY=($(compgen -W "$words" -- "$cur")); [ -n "$words" ] || COMPREPLY=($(compgen -f -- "$cur")) ;;
  esac
}
complete -o default -F _fairway fairway
"""

_ZSH = """\
#compdef fairway
# fairway completion for zsh:  source <(fairway completion zsh)
_fairway() {
  local -a verbs flags words_of
  verbs=(
@VERBS@
  )
  if (( CURRENT == 2 )); then
    _describe 'verb' verbs
    return
  fi
  case "${words[2]}" in
@CASES@
  esac
  if [[ "${words[CURRENT]}" == -* ]]; then
    compadd -- $flags
  elif (( ${#words_of} )); then
    compadd -- $words_of
  else
    _files
  fi
}
compdef _fairway fairway
"""

COMMANDS = {
    "bash": CliCommand("completion bash", "Print completion for bash: source <(fairway completion bash)", bash),
    "zsh": CliCommand("completion zsh", "Print completion for zsh: source <(fairway completion zsh)", zsh),
    "fish": CliCommand("completion fish", "Print completion for fish: fairway completion fish | source", fish),
}
