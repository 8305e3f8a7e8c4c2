"""Completion scripts for shells, made from the parser itself so that they can't fall behind."""

from __future__ import annotations

import argparse
from shlex import quote
from typing import NamedTuple

FILES = frozenset({"FILE", "DIR", "SOURCE", "DIRECTORY"})
"""What a value is called that may be the name of a file."""


class Word(NamedTuple):
    """A command, or a flag and what may follow it."""

    text: str
    help: str = ""
    takes: bool = False
    choices: tuple[str, ...] = ()
    files: bool = False


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](parser.prog, _words(parser))


def _words(parser: argparse.ArgumentParser) -> dict[str, list[Word]]:
    """Words after each path of commands: '' for the program, 'query check' for a command of a command."""
    table: dict[str, list[Word]] = {}

    def walk(path: str, inner: argparse.ArgumentParser) -> None:
        words: dict[str, Word] = {}
        for action in inner._actions:
            if isinstance(action, argparse._SubParsersAction):
                helps = {entry.dest: entry.help or "" for entry in action._choices_actions}
                for name, child in action.choices.items():
                    words[name] = Word(name, helps.get(name, ""))
                    walk(f"{path} {name}".strip(), child)
                continue
            for option in action.option_strings:
                if option.startswith("--"):
                    words[option] = _flag(option, action)
            if not action.option_strings and action.choices:
                words |= {str(choice): Word(str(choice)) for choice in action.choices if " " not in str(choice)}
        table[path] = sorted(words.values(), key=lambda word: word.text)

    walk("", parser)
    return table


def _flag(option: str, action: argparse.Action) -> Word:
    return Word(
        option,
        (action.help or "").replace("%%", "%"),
        takes=action.nargs != 0,
        choices=tuple(str(choice) for choice in action.choices or ()),
        files=action.metavar in FILES,
    )


def _bash(program: str, table: dict[str, list[Word]]) -> str:
    values = [
        f"    {quote(f'{path} {word.text}'.strip())}) {_bash_value(word)} ;;"
        for path, words in table.items()
        for word in words
        if word.takes
    ]
    cases = [
        f"    {quote(path)}) words={quote(' '.join(word.text for word in words))} ;;" for path, words in table.items()
    ]
    inner = "|".join(sorted({quote(path.partition(" ")[0]) for path in table if " " in path}))
    lines = "\n".join
    return f"""\
# {program} completion for bash: eval "$({program} completion bash)"
_{program}() {{
  local path='' word words='' current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$word" in
      -*) ;;
      *) case "$path" in ''|{inner}) path="${{path:+$path }}$word" ;; esac ;;
    esac
  done
  COMPREPLY=()
  case "$path${{path:+ }}$before" in
{lines(values)}
  esac
  case "$path" in
{lines(cases)}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [[ ${{#COMPREPLY[@]}} -eq 0 && "$current" != -* ]]; then COMPREPLY=($(compgen -f -- "$current")); fi
}}
complete -o filenames -F _{program} {program}
"""


def _bash_value(word: Word) -> str:
    """What to do at the value of a flag: offer what there is, and no flag in its place."""
    if word.choices:
        return f'COMPREPLY=($(compgen -W {quote(" ".join(word.choices))} -- "$current")); return'
    return 'COMPREPLY=($(compgen -f -- "$current")); return' if word.files else "return"


def _zsh(program: str, table: dict[str, list[Word]]) -> str:
    return "autoload -U +X bashcompinit && bashcompinit\n" + _bash(program, table)


def _fish(program: str, table: dict[str, list[Word]]) -> str:
    lines = [f"# {program} completion for fish: {program} completion fish | source"]
    for path, words in table.items():
        condition = "__fish_use_subcommand"
        if path:
            condition = "; and ".join(f"__fish_seen_subcommand_from {name}" for name in path.split())
        for word in words:
            what = f"-l {word.text[2:]}" if word.text.startswith("--") else f"-f -a {word.text}"
            if word.takes:
                what += " -r" if word.files else " -x"
            if word.choices:
                what += f" -a {quote(' '.join(word.choices))}"
            if word.help:
                what += f" -d {quote(word.help)}"
            lines.append(f"complete -c {program} -n {quote(condition)} {what}")
    return "\n".join(lines) + "\n"
