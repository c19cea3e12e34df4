"""The settings: their definitions, and the value in effect by flag, environment variable, file or default."""

from __future__ import annotations

import difflib
import functools
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from tfmon.api.rules import COMMAND, PYTHON, RULES, SCENARIO, SLICE, YEAR_S, ValueRule, number, one_of, yes_or_no
from tfmon.errors import UsageError
from tfmon.lanes.remote.host import HOSTS_TEMPLATE, Host, is_ray, read_hosts
from tfmon.units import Charset

if TYPE_CHECKING:
    from tfmon.lanes.remote.ray import RayCluster

Value: TypeAlias = str | bool | float
Source: TypeAlias = Literal["flag", "environment", "file", "default"]
FILE_VARIABLE = "TFMON_CONFIG"


def _themes() -> Sequence[str]:
    from tfmon.ui.render.style import themes

    return themes()


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting."""

    name: str
    """Key in the file; the environment variable is TFMON_ and the name in capitals."""
    default: Value
    rule: ValueRule
    help: str

    @property
    def variable(self) -> str:
        """Return its environment variable."""
        return f"TFMON_{self.name.upper()}"

    def read(self, value: object, *, as_text: bool = True) -> Value:
        """Return a value from a flag or a variable, or else from the file; raises ValueError."""
        try:
            said = self.rule.parse(value) if as_text and isinstance(value, str) else value
            return cast(Value, self.rule.read(said))
        except ValueError:
            raise ValueError(f"{value!r} is not {self.rule.allowed(in_text=True)}") from None


THEME = one_of("theme", _themes)
_CHARACTERS = one_of("characters", lambda: ("auto", "braille", "block", "ascii"))
SETTINGS = (
    Setting("scenario", "small-dense", SCENARIO, "What is raced where no scenario is named."),
    Setting("python", "", PYTHON, 'The interpreter that trains; "" for the one that runs tfmon.'),
    Setting("mode", "turns", RULES["mode"], "Lanes train in turns, or concurrent: all at once."),
    Setting("slice", 0.5, SLICE, "Length of one lane's slice in seconds."),
    Setting(
        "grace",
        30.0,
        number("seconds", "a time in seconds", 0.0, 86_400),
        "Seconds that a script of yours gets to end after Ctrl+C, before SIGTERM and SIGKILL.",
    ),
    Setting(
        "start_timeout",
        300.0,
        number("seconds", "a time in seconds", 10.0, YEAR_S),
        "Seconds that a lane may be silent before it trains; then it is ended, a script only with --seconds.",
    ),
    Setting("theme", "textual-dark", THEME, "Colours of the screen; any of Textual's themes."),
    Setting(
        "characters",
        "auto",
        _CHARACTERS,
        "What charts and frames are drawn with: auto, braille, block or ascii.",
    ),
    Setting("mouse", True, yes_or_no(), "Whether the mouse acts; if not, the terminal's own selection works."),
    Setting(
        "view_copy",
        200,
        number("MiB", "a whole number", 0),
        "Most MiB of a folder that is copied for each lane of a script where there are no copy-on-write views.",
    ),
    Setting(
        "notify",
        "",
        COMMAND,
        "What is run when something happens to a lane: a command, or bell, osc9, osc777 for your terminal.",
    ),
    Setting("readonly", False, yes_or_no(), "Show a race to others: no key changes anything."),
)
BY_NAME = {setting.name: setting for setting in SETTINGS}
HOSTS = "hosts"


@dataclass(frozen=True, slots=True)
class Resolved:
    """The value of a setting in effect, and its source."""

    value: Value
    source: Source


@dataclass(frozen=True, slots=True)
class ScreenSettings:
    """The appearance and behaviour of the screen."""

    theme: str
    charset: Charset | None
    """Characters of charts and frames. `None` for the default of the locale."""
    mouse: bool
    readonly: bool
    notify: str = ""
    """Action of the terminal for notices, a name of `tfmon.api.notify.TERMINAL`."""


def resolve(name: str, given: object = None, file: ConfigFile | None = None) -> Resolved:
    """Return the value in effect; `given` is the flag's value or None; raises UsageError with its source."""
    setting = BY_NAME[name]
    said = os.environ.get(setting.variable, "")
    try:
        if given is not None:
            return Resolved(setting.read(given), "flag")
        if said:
            return Resolved(setting.read(said), "environment")
    except ValueError as error:
        where = setting.variable if given is None else f"--{name}"
        raise UsageError(f"{where}: {error}") from None
    values = (file or config_file()).values
    return Resolved(values[name], "file") if name in values else Resolved(setting.default, "default")


def screen_settings(
    theme: str | None, mouse: bool | None, readonly: bool | None, notify: str | None = None
) -> ScreenSettings:
    """Return the screen's settings; the arguments are the flags' values or None; raises UsageError."""
    characters = str(resolve("characters").value)
    return ScreenSettings(
        theme=str(resolve("theme", theme).value),
        charset=None if characters == "auto" else cast(Charset, characters),
        mouse=bool(resolve("mouse", mouse).value),
        readonly=bool(resolve("readonly", readonly).value),
        notify=str(resolve("notify", notify).value),
    )


def find_host(name: str, cluster: RayCluster | None = None, gpus: int = 0) -> Host:
    """Return the connection to a host: of the settings file, Ray or ssh; raises UsageError or TfmonError."""
    host = config_file().hosts.get(name)
    if is_ray(name) and (host is None or not host.run):
        from tfmon.lanes.remote.ray import RayCluster  # late: most races need none of it

        return (cluster or RayCluster()).host(name, gpus, "" if host is None else host.python)
    return replace(host or Host(name), settings=str(config_path()))


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The content of the user's file, and a line for every mistake."""

    path: Path
    exists: bool = False
    values: Mapping[str, Value] = field(default_factory=dict)
    hosts: Mapping[str, Host] = field(default_factory=dict)
    mistakes: tuple[str, ...] = ()


def config_path() -> Path:
    """Return the path of the file."""
    from platformdirs import user_config_path

    named = os.environ.get(FILE_VARIABLE, "")
    return Path(named).expanduser().absolute() if named else user_config_path("tfmon") / "config.toml"


def config_file() -> ConfigFile:
    """Return the settings in the user's file; raises UsageError with a line for each mistake."""
    result = read_file(config_path())
    if result.mistakes:
        raise UsageError("\ntfmon: ".join(result.mistakes), "tfmon config shows the settings, and their names")
    return result


@functools.lru_cache(maxsize=4)
def read_file(path: Path) -> ConfigFile:
    """Return the settings in a file and its mistakes. Empty for a missing file."""
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        named = os.environ.get(FILE_VARIABLE)
        return ConfigFile(path, mistakes=(f"{FILE_VARIABLE}: {path} is not there",) if named else ())
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
    problems = tuple(f"{path}: {mistake}" for mistake in (*mistakes, *unreachable))
    return ConfigFile(path, exists=True, values=values, hosts=hosts, mistakes=problems)


def _values(table: Mapping[str, Any]) -> tuple[dict[str, Value], list[str]]:
    values: dict[str, Value] = {}
    mistakes: list[str] = []
    for name, value in table.items():
        setting = BY_NAME.get(name)
        if setting is None:
            if name != HOSTS:
                near = difflib.get_close_matches(name, (*BY_NAME, HOSTS), n=1)
                known = f"there are {', '.join(BY_NAME)} and [hosts]"
                hint = f"did you mean {near[0]}?" if near else known
                mistakes.append(f"there is no setting {name!r}; {hint}")
            continue
        try:
            values[name] = setting.read(value, as_text=False)
        except ValueError as error:
            mistakes.append(f"{name}: {error}")
    return values, mistakes


def template() -> str:
    """Return a settings file with every setting in comments, with its default."""
    lines = ["# Settings of tfmon; remove a # to set one. `tfmon config` shows what is in effect.", ""]
    for setting in SETTINGS:
        lines += [f"# {setting.help}", f"#{setting.name} = {json.dumps(setting.default)}", ""]
    return "\n".join([*lines, *HOSTS_TEMPLATE]) + "\n"
