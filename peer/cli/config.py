"""Settings of the command line: each is a flag, an environment variable and a key in a TOML file, in that order.

    --parents 3                 the flag, first
    PEER_PARENTS=3              then the environment
    parents = 3                 then the file: in a table named like the command ([join]), or at the top for all

The file is --config FILE, else $PEER_CONFIG, else ./skymesh.toml, else ~/.config/skymesh/config.toml, whichever is
there first. `config show` prints where each value came from.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from peer.cli.errors import CliError, ExitCode, nearest

if TYPE_CHECKING:
    from pathlib import Path

ENVIRONMENT_PREFIX = "PEER_"
_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off", ""}


def switch(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(f"expected true or false, got {text!r}")


class Setting(NamedTuple):  # not a dataclass: that would import `inspect`, which costs more than all of this
    """One knob. `read` turns text into a value (ValueError); `many` collects several."""

    name: str
    help: str
    read: Callable[[str], Any] = str
    default: Any = None
    metavar: str | None = None
    choices: tuple[str, ...] | None = None
    many: bool = False
    is_switch: bool = False
    required: bool = False
    negative: str | None = None
    """A second flag that sets a switch to False."""
    of: type | None = None
    """The dataclass that declares it, if it is an option of a peer or a feed."""
    field: str = ""
    """Its field there."""
    default_text: str = ""
    """How the default is described, if its value does not say it."""
    positional: str = ""
    """How it is called in the usage, if it may also be given without its flag."""
    alias: str = ""
    """A second name with the same meaning, as a flag, a variable and a key."""

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper()

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, self.alias) if self.alias else (self.name,)

    @property
    def default_shown(self) -> str:
        """The default as people read it; empty where it says nothing."""
        return self.default_text or ("" if self.is_switch and not self.negative else _text(self.default))

    @property
    def described(self) -> str:
        """The help with the default."""
        return f"{self.help} (default: {self.default_shown})" if self.default_shown else self.help

    def optional(self) -> Setting:
        """The same, but nobody need give it."""
        return self._replace(required=False)

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        # Absent flags leave no trace, so that the layers below can speak.
        text = self.described.replace("%", "%%")
        options: dict[str, Any] = {"dest": self.name, "help": text, "default": argparse.SUPPRESS}
        if self.is_switch:
            if self.negative is not None:
                parser.add_argument(self.flag, action="store_true", **options)
                options["help"] = f"the opposite of {self.flag}"
                parser.add_argument("--" + self.negative, action="store_false", **options)
            else:
                parser.add_argument(self.flag, action="store_true", **options)
            return
        options["metavar"] = self.metavar or (None if self.choices else self.name.upper())
        if self.choices:
            options["choices"] = self.choices
        if self.many:
            options["action"] = "append"
        if self.positional:
            parser.add_argument(self._place, nargs="?", default=argparse.SUPPRESS, help=text, metavar=self.positional)
            options["help"] = f"the same as {self.positional}"
        parser.add_argument(*("--" + name.replace("_", "-") for name in self.names), **options)

    @property
    def _place(self) -> str:
        """Where the parser leaves what was given without a flag: apart, so that a contradiction is seen."""
        return self.name + "_given_first"

    def given(self, arguments: argparse.Namespace) -> object:
        """What the call says about it; None if it says nothing."""
        by_flag = getattr(arguments, self.name, None)
        by_place = getattr(arguments, self._place, None) if self.positional else None
        if by_flag is not None and by_place is not None and by_flag != by_place:
            raise CliError(f"{self.positional} is given twice: {by_place} and {self.flag} {by_flag}", ExitCode.USAGE)
        return by_flag if by_place is None else by_place

    def value(self, found: object, origin: str) -> Any:
        """What a layer says, checked; CliError with the place when it is wrong."""
        if self.is_switch and isinstance(found, bool):
            return found
        try:
            if self.many:
                items = found if isinstance(found, list) else str(found).split(",") if origin != "flag" else [found]
                return [self.read(str(item).strip()) for item in items if str(item).strip()]
            value = switch(str(found)) if self.is_switch else self.read(str(found))
        except ValueError as error:
            where = self.flag if origin == "flag" else f"{self.name} ({origin})"
            raise CliError(f"{where}: {error}", ExitCode.USAGE) from None
        except OSError as error:
            raise CliError(f"{self.flag} {found}: {error.strerror}", ExitCode.CONFIG) from None
        if self.choices and value not in self.choices:
            choices = ", ".join(self.choices)
            raise CliError(f"{self.name} ({origin}): expected one of {choices}, got {value!r}", ExitCode.USAGE)
        return value


def _text(default: object) -> str:
    """A default as it would be written; nothing for one that says nothing."""
    if isinstance(default, bool):
        return "on" if default else "off"
    return "" if default is None else f"{default:g}" if isinstance(default, float) else str(default)


class Settings:
    """The values for one command, each with where it came from."""

    def __init__(self, known: Iterable[Setting]) -> None:
        self._known = {setting.name: setting for setting in known}
        self.by_name = {name: setting for setting in self._known.values() for name in setting.names}
        self.values: dict[str, Any] = {}
        self.origins: dict[str, str] = {}
        self.file: Path | None = None

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)

    def set(self, name: str, found: object, origin: str) -> None:
        setting = self.by_name[name]
        self.values[setting.name] = setting.value(found, origin)
        self.origins[setting.name] = origin

    def fields(self, kind: type) -> dict[str, Any]:
        """What was chosen of a dataclass of options, by the names of its fields."""
        return {
            setting.field: self.values[name]
            for name, setting in self._known.items()
            if setting.of is kind and self.values[name] is not None
        }

    def rows(self) -> list[tuple[str, Any, str]]:
        return [(name, self.values[name], self.origins[name]) for name in self._known]


def resolve(
    known: Iterable[Setting],
    arguments: argparse.Namespace,
    environment: Mapping[str, str],
    *,
    command: str,
    others: Collection[str] = (),
) -> Settings:
    """All layers, the lowest first. CliError for a wrong value, an unknown key, or a required one that nobody gave.

    `others` are the names of settings of other commands, which may stand at the top of the file too.
    """
    known = list(known)
    settings = Settings(known)
    for setting in known:
        settings.values[setting.name] = list(setting.default or []) if setting.many else setting.default
        settings.origins[setting.name] = "default"
    path = _file(getattr(arguments, "config", None), environment)
    if path is not None:
        settings.file = path
        _apply_file(settings, path, command, others)
    for name in reversed(settings.by_name):  # a name goes before its alias
        variable = ENVIRONMENT_PREFIX + name.upper()
        if variable in environment:
            settings.set(name, environment[variable], f"environment {variable}")
    for setting in known:
        found = setting.given(arguments)
        if found is not None:
            settings.set(setting.name, found, "flag")
    for setting in known:
        if setting.required and settings.values[setting.name] is None:
            give = f"name it ({command} {setting.positional})" if setting.positional else "give the flag"
            raise CliError(
                f"{setting.positional or setting.flag} is missing: {give}, set {setting.variable}, or write "
                f"{setting.name} = ... in the configuration file",
                ExitCode.USAGE,
            )
    return settings


def _file(chosen: str | None, environment: Mapping[str, str]) -> Path | None:
    from pathlib import Path

    named = chosen or environment.get(ENVIRONMENT_PREFIX + "CONFIG")
    if named:
        return Path(named)
    home = environment.get("XDG_CONFIG_HOME") or os.path.join(environment.get("HOME", "."), ".config")
    for path in (Path("skymesh.toml"), Path(home) / "skymesh" / "config.toml"):
        if path.is_file():
            return path
    return None


def _apply_file(settings: Settings, path: Path, command: str, others: Collection[str]) -> None:
    import tomllib

    try:
        with path.open("rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise CliError(f"cannot read the configuration {path}: {error.strerror}", ExitCode.CONFIG) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CliError(f"the configuration {path} is not TOML: {error}", ExitCode.CONFIG) from None
    tables = [("", document)]
    if isinstance(document.get(command), dict):
        tables.append((f"[{command}] ", document[command]))
    for prefix, table in tables:
        for key, found in table.items():
            name = key.replace("-", "_")
            if isinstance(found, dict):
                continue
            if name not in settings.by_name:
                if name not in others or prefix:
                    hint = nearest(name, settings.by_name)
                    raise CliError(f"the configuration {path} has an unknown key: {prefix}{key}{hint}", ExitCode.CONFIG)
                continue
            settings.set(name, found, f"file {path}")
