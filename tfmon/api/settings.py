"""The settings, and their values in effect."""

from __future__ import annotations

import copy
import difflib
import functools
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast

from tfmon.api import value_rules
from tfmon.api.options import RaceOptions
from tfmon.api.value_rules import LIMITS, YES_OR_NO, Option, Options
from tfmon.errors import UsageError
from tfmon.lanes.remote.remote_host import HOSTS_TEMPLATE, Host, is_ray, read_hosts
from tfmon.model.fast_dataclass import dataclass
from tfmon.units import Charset

if TYPE_CHECKING:
    from tfmon.lanes.remote.ray import RayCluster

Chosen = TypeVar("Chosen", bound=Options)
Value: TypeAlias = str | bool | float | tuple[str, ...]
Source: TypeAlias = Literal["flag", "environment", "file", "default"]
FILE_VARIABLE = "TFMON_CONFIG"
SCREENS = "race watch sweep replay attach config"


@dataclass(kw_only=True, eq=False, repr=False)
class ScreenOptions(Options):
    """The appearance of the screen."""

    theme: Option[str | None, str] = Option(
        value_rules.one_of("theme", lambda: _themes()),
        "textual-dark",
        "Colours of the screen, such as textual-light; a wrong name lists all.",
        commands=SCREENS,
    )
    characters: Option[str | None, str] = Option(
        value_rules.one_of("characters", lambda: ("auto", "braille", "block", "ascii")),
        "auto",
        "What charts and frames are drawn with: auto, braille, block or ascii.",
        commands=SCREENS,
        flag=None,
    )
    mouse: Option[bool | None, bool] = Option(
        YES_OR_NO,
        True,
        "Whether the mouse acts on the screen. If not, the terminal's own selection works.",
        commands=SCREENS,
        flag="--mouse/--no-mouse",
    )
    readonly: Option[bool | None, bool] = Option(
        YES_OR_NO,
        False,
        "Show the race to others: no key changes anything.",
        commands="race watch attach config",
        flag="--readonly/--no-readonly",
    )
    notify: Option[str | None, str] = Option(
        RaceOptions.declaration("notify").rule,
        "",
        RaceOptions.declaration("notify").help,
        commands="race watch attach config",
        flag=None,
    )

    @property
    def charset(self) -> Charset | None:
        """The characters, or `None` for the locale's."""
        return None if self.characters == "auto" else cast(Charset, self.characters)


def _themes() -> Sequence[str]:
    from tfmon.ui.render.style import themes

    return themes()


@dataclass(kw_only=True, eq=False, repr=False)
class LimitOptions(Options):
    """Limits, which are only settings."""

    @classmethod
    def of_user(cls) -> LimitOptions:
        """Return the user's limits; raises UsageError."""
        return settled(cls(), LIMITS)

    grace: Option[float | None, float] = Option(
        value_rules.seconds(0.0, 86_400),
        30.0,
        "Seconds that a script of yours gets to end after Ctrl+C, before SIGTERM and SIGKILL.",
        commands=LIMITS,
        flag=None,
    )
    start_timeout: Option[float | None, float] = Option(
        value_rules.seconds(10.0),
        300.0,
        "Seconds that a lane may be silent before it trains; then it is ended, a script only with --seconds.",
        commands=LIMITS,
        flag=None,
    )
    view_copy: Option[int | None, int] = Option(
        value_rules.whole(0, name="MiB"),
        200,
        "Most MiB of a folder that is copied for each lane of a script where there are no copy-on-write views.",
        commands=LIMITS,
        flag=None,
    )


_DECLARED = (*ScreenOptions.declared(), *LimitOptions.declared(), *RaceOptions.declared())
BY_NAME = {option.setting: option for option in _DECLARED if option.setting}
SETTINGS = tuple(BY_NAME.values())
HOSTS, KEYS = "hosts", "keys"


@dataclass(frozen=True, slots=True)
class Resolved:
    """A value in effect, and its source."""

    value: Value
    source: Source


def resolve(name: str, argument: object = None, file: ConfigFile | None = None) -> Resolved:
    """Return the value in effect; raises UsageError."""
    setting = BY_NAME[name]
    text = os.environ.get(setting.variable, "")
    try:
        if argument is not None:
            return Resolved(setting.rule.of_text(argument), "flag")
        if text:
            return Resolved(setting.rule.of_text(text), "environment")
    except ValueError as error:
        source = setting.variable if argument is None else f"--{name}"
        raise UsageError(f"{source}: {error}") from None
    values = (file or config_file()).values
    return Resolved(values[name], "file") if name in values else Resolved(setting.default, "default")


def settled(options: Chosen, command: str) -> Chosen:
    """Return options with the user's settings; raises UsageError."""
    result, names = copy.copy(options), frozenset(name for name in vars(options) if options.has(name))
    for option in options.declared():
        if option.name not in names and option.setting and command in option.commands:
            resolved = resolve(option.setting)
            vars(result)[option.name] = None if resolved.source == "default" else resolved.value
    result.validate(command, names)
    return result


def find_host(name: str, cluster: RayCluster | None = None, gpus: int = 0) -> Host:
    """Return a host; raises TfmonError."""
    host = config_file().hosts.get(name)
    if is_ray(name) and (host is None or not host.run):
        from tfmon.lanes.remote.ray import RayCluster

        return (cluster or RayCluster()).host(name, gpus, "" if host is None else host.python)
    return replace(host or Host(name), settings=str(config_path()))


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The content of the user's file."""

    path: Path
    exists: bool = False
    values: Mapping[str, Value] = field(default_factory=dict)
    hosts: Mapping[str, Host] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys by the ids of `tfmon.ui.keys`."""
    mistakes: tuple[str, ...] = ()


def config_path() -> Path:
    """Return the path of the file."""
    from platformdirs import user_config_path

    path = os.environ.get(FILE_VARIABLE, "")
    return Path(path).expanduser().absolute() if path else user_config_path("tfmon") / "config.toml"


def config_file() -> ConfigFile:
    """Return the user's settings; raises UsageError."""
    result = read_file(config_path())
    if result.mistakes:
        raise UsageError("\ntfmon: ".join(result.mistakes), "tfmon config shows the settings, and their names")
    return result


@functools.lru_cache(maxsize=4)
def read_file(path: Path) -> ConfigFile:
    """Return a file's settings and mistakes."""
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        required = os.environ.get(FILE_VARIABLE)
        return ConfigFile(path, mistakes=(f"{FILE_VARIABLE}: {path} is not there",) if required else ())
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        return ConfigFile(path, exists=True, mistakes=(f"{path} cannot be read: {reason}",))
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return ConfigFile(path, exists=True, mistakes=(f"{path} is not TOML: {error}",))
    values, mistakes = _values(table)
    hosts, unreachable = read_hosts(table.get(HOSTS, {}))
    keys, unknown = _keys(table.get(KEYS, {}))
    problems = tuple(f"{path}: {mistake}" for mistake in (*mistakes, *unreachable, *unknown))
    return ConfigFile(path, exists=True, values=values, hosts=hosts, keys=keys, mistakes=problems)


def _keys(table: object) -> tuple[dict[str, str], list[str]]:
    if not isinstance(table, dict):
        return {}, ['keys: this is a table; below [keys] write pause = "f5"']
    if not table:
        return {}, []
    from tfmon.ui.keys import keymap_mistakes

    flat = dict(_flat(table))
    mistakes = keymap_mistakes(flat)
    return ({} if mistakes else {name: str(value) for name, value in flat.items()}), mistakes


def _flat(table: Mapping[str, Any], parent: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{parent}{name}.")
        else:
            yield parent + name, value


def _values(table: Mapping[str, Any]) -> tuple[dict[str, Value], list[str]]:
    values: dict[str, Value] = {}
    mistakes: list[str] = []
    for name, value in table.items():
        setting = BY_NAME.get(name)
        if setting is None:
            if name not in (HOSTS, KEYS):
                near = difflib.get_close_matches(name, (*BY_NAME, HOSTS, KEYS), n=1)
                known = f"there are {', '.join(BY_NAME)}, [keys] and [hosts]"
                hint = f"did you mean {near[0]}?" if near else known
                mistakes.append(f"there is no setting {name!r}; {hint}")
            continue
        try:
            values[name] = setting.rule.of_text(value, as_text=False)
        except ValueError as error:
            mistakes.append(f"{name}: {error}")
    return values, mistakes


KEYS_TEMPLATE = (
    "# Other keys on the screen. The manual lists the names: Keys and settings.",
    "#[keys]",
    '#pause = "f5"',
    '#batch.up = "ctrl+up,B"',
)


def template() -> str:
    """Return a file with every setting in comments."""
    lines = ["# Settings of tfmon; remove a # to set one. `tfmon config` shows what is in effect.", ""]
    for option in SETTINGS:
        lines += [f"# {option.help}", f"#{option.setting} = {json.dumps(option.default)}", ""]
    return "\n".join([*lines, *KEYS_TEMPLATE, "", *HOSTS_TEMPLATE]) + "\n"
