"""Completion scripts for shells, made from the parser itself so that they can't fall behind."""

from __future__ import annotations

import argparse


def _words(parser: argparse.ArgumentParser) -> dict[str, list[str]]:
    """Words after each path of commands: '' for the program, 'query check' for a command of a command."""
    table: dict[str, list[str]] = {}

    def walk(path: str, inner: argparse.ArgumentParser) -> None:
        words: list[str] = []
        for action in inner._actions:
            if isinstance(action, argparse._SubParsersAction):
                words += action.choices
                for name, child in action.choices.items():
                    walk(f"{path} {name}".strip(), child)
            else:
                words += [option for option in action.option_strings if option.startswith("--")]
        table[path] = sorted(set(words))

    walk("", parser)
    return table


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    table = _words(parser)
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](parser.prog, table)


def _bash(program: str, table: dict[str, list[str]]) -> str:
    cases = "\n".join(
        f"    {path!r}) words={' '.join(words)!r} ;;" if path else f"    '') words={' '.join(words)!r} ;;"
        for path, words in table.items()
    )
    return f"""\
# {program} completion for bash: eval "$({program} completion bash)"
_{program}() {{
  local path='' word words current="${{COMP_WORDS[COMP_CWORD]}}"
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$word" in
      -*) ;;
      *) [[ -z "$path" || "$path" == query || "$path" == config ]] && path="${{path:+$path }}$word" ;;
    esac
  done
  case "$path" in
{cases}
    *) words='' ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  [[ ${{#COMPREPLY[@]}} -eq 0 ]] && COMPREPLY=($(compgen -f -- "$current"))
}}
complete -F _{program} {program}
"""


def _zsh(program: str, table: dict[str, list[str]]) -> str:
    return "autoload -U +X bashcompinit && bashcompinit\n" + _bash(program, table)


def _fish(program: str, table: dict[str, list[str]]) -> str:
    lines = [f"# {program} completion for fish: {program} completion fish | source"]
    for path, words in table.items():
        if not path:
            condition = "__fish_use_subcommand"
        else:
            condition = "; and ".join(f"__fish_seen_subcommand_from {name}" for name in path.split())
        for word in words:
            what = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            lines.append(f"complete -c {program} -n '{condition}' {what}")
    return "\n".join(lines) + "\n"
