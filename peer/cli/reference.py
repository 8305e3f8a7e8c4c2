"""What is written out from the declarations of options: peer/keywords.py for type checkers, docs/options.md for people.

python -m peer.cli.reference       write both again; `make format` does it, and a test sees when it was forgotten
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import Field
from pathlib import Path
from typing import Any

from peer.cli.config import Setting
from peer.cli.settings import COMMANDS, settings_for
from peer.feeds.options import FeedOptions
from peer.options import PeerOptions
from peer.optionspec import Spec, options_of

# The functions of the API, the classes whose options are their keywords, and the name of the TypedDict.
FUNCTIONS: dict[str, tuple[tuple[type, ...], str]] = {
    "join": ((PeerOptions,), "JoinKeywords"),
    "root": ((PeerOptions,), "RootKeywords"),
    "root_from": ((FeedOptions, PeerOptions), "RootFromKeywords"),
}

_KEYWORDS_HEAD = '''"""The keywords of `peer.join`, `peer.root` and `peer.root_from`, for type checkers and editors.

Written by `python -m peer.cli.reference` from `peer.options` and `peer.feeds.options`: change them there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Literal, TypedDict

HostPort = tuple[str, int]
StrPath = str | os.PathLike[str]
'''

_PAGE_HEAD = """\
# Options

Written by `python -m peer.cli.reference` from the declarations in `peer/options.py` and `peer/feeds/options.py`.

An option is a flag, a variable and a key of the configuration file: `--find-timeout 5`, `PEER_FIND_TIMEOUT=5`,
`find_timeout = 5`. [cli.md](cli.md) says which of them wins. The column *keyword* is its name in the Python API, for
`peer.join`, `peer.root` and `peer.root_from` ([api.md](api.md)); the same keywords work in `peer.blocking` and
`peer.guest`.
"""


def keywords_source() -> str:
    parts = [_KEYWORDS_HEAD]
    for function, (kinds, name) in FUNCTIONS.items():
        lines = [f'\n\nclass {name}(TypedDict, total=False):\n    """The keywords of `{function}`."""\n\n']
        lines += [
            f"    {declared.name}: {_type(declared, spec)}\n"
            for kind in kinds
            for declared, spec in options_of(kind, function, "api")
        ]
        parts.append("".join(lines))
    return "".join(parts)


def _type(declared: Field[Any], spec: Spec) -> str:
    if spec.choices:
        return f"Literal[{', '.join(json.dumps(choice) for choice in spec.choices)}]"
    return spec.keyword or str(declared.type)


def options_page(commands: Iterable[str] = COMMANDS) -> str:
    parts = [_PAGE_HEAD]
    for command in commands:
        parts.append(f"\n## {command}\n\n| flag | keyword | default | meaning |\n|---|---|---|---|\n")
        keywords = {
            (kind, declared.name)
            for function, (kinds, _) in FUNCTIONS.items()
            if function.startswith(command)
            for kind in kinds
            for declared, _ in options_of(kind, function, "api")
        }
        parts += [_row(setting, keywords) for setting in settings_for(command)]
    parts.append("\n## Only in the API\n\n| function | keyword | default | meaning |\n|---|---|---|---|\n")
    parts += [
        f"| `{function}` | `{declared.name}` | {declared.default} | {spec.help} |\n"
        for function, (kinds, _) in FUNCTIONS.items()
        for kind in kinds
        for declared, spec in options_of(kind, function, "api")
        if spec.only == "api"
    ]
    return "".join(parts)


def _row(setting: Setting, keywords: set[tuple[type, str]]) -> str:
    value = f" {setting.metavar or '|'.join(setting.choices or ()) or setting.name.upper()}"
    flag = setting.flag if setting.is_switch else setting.flag + value.replace("|", "\\|")
    flag += f"`, `--{setting.negative}" if setting.negative else ""
    flag = (f"{setting.positional}`, `" if setting.positional else "") + flag
    flag += f"`, `--{setting.alias}" if setting.alias else ""
    keyword = f"`{setting.field}`" if setting.of is not None and (setting.of, setting.field) in keywords else ""
    default = "required" if setting.required else setting.default_shown
    return f"| `{flag}` | {keyword} | {default} | {setting.help.replace('|', chr(92) + '|')} |\n"


def write(root: Path) -> None:
    (root / "peer" / "keywords.py").write_text(keywords_source())
    (root / "docs" / "options.md").write_text(options_page())


if __name__ == "__main__":
    write(Path(__file__).resolve().parents[2])
