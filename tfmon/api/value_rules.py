"""Options, and rules for their values.

A rule is a Click type, which parses text. Values from Python are not parsed, so text is not a number.
"""

from __future__ import annotations

import inspect
import math
import numbers
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import click
from click.shell_completion import CompletionItem

from tfmon.analysis.concern_ids import FAIL_ON
from tfmon.errors import UsageError, flag
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.knobs import KnobValue, exact

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)

YEAR_S, WEEK_MIN = 365 * 86_400, 10_080
LARGEST = 1e300
LONGEST_VALUE = 80
PATH = "path"
LIMITS = "limits"
"""Stands for all commands."""


class ValueRule(click.ParamType, Generic[Out]):  # type: ignore[type-arg]  # generic since Click 8.3
    """The allowed values, with a function that checks values and a function that parses text."""

    def __init__(
        self,
        name: str,
        allowed: str | Callable[[], str],
        read: Callable[[Any], Out],
        *,
        parse: Callable[[str], object] = str,
        in_text: str = "",
        choices: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self.name, self.read, self.parse, self.choices = name, read, parse, choices
        self._allowed, self._in_text = allowed, in_text

    def allowed(self, *, in_text: bool = False) -> str:
        """Return a noun for the allowed values."""
        text = self._allowed if isinstance(self._allowed, str) else self._allowed()
        return self._in_text or text if in_text else text

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Out:
        """Parse text; raises click.BadParameter."""
        try:
            return self.of_text(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def of_text(self, value: object, *, as_text: bool = True) -> Out:
        """Return a value of the command line, a variable or the file; raises ValueError."""
        try:
            return self.read(self.parse(value) if as_text and isinstance(value, str) else value)
        except (ValueError, click.BadParameter):
            raise ValueError(f"{value!r} is not {self.allowed(in_text=True)}") from None

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the allowed words."""
        if self.name == PATH:
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(word) for word in self.choices() if word.startswith(incomplete)]

    def argument(self, name: str, value: object) -> Out:
        """Return the value of an argument; raises UsageError."""
        try:
            return self.read(value)
        except ValueError:
            shown = repr(value)
            shown = shown if len(shown) <= LONGEST_VALUE else shown[: LONGEST_VALUE - 1] + "…"
            raise UsageError(f"{name}={shown} is not possible", f"it is {self.allowed()}") from None


class Option(Generic[In, Out]):
    """A field of `Options`, which checks and converts assigned values. `None` stands for the default.

    The type parameters are the types of assigned and of read values.
    """

    name: str

    def __init__(
        self,
        rule: ValueRule[Out],
        default: Out,
        help: str,
        *,
        commands: str = "",
        flag: str | None = "",
        metavar: str | None = None,
        shown: str | bool = False,
        off: str = "",
        optional_value: str | None = None,
        multiple: bool = False,
    ) -> None:
        """Declare an option.

        Args:
            flag: The flag, by default from the name. `None` for no flag.
            off: A flag that sets the option to False.
        """
        self.rule, self.default, self.help, self.commands = rule, default, help, commands.split()
        self.metavar, self.shown, self.off = metavar, shown, off
        self.optional_value, self.multiple, self._flag = optional_value, multiple, flag
        self.has_flag = flag is not None

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type | None = None) -> Out:
        value = None if instance is None else vars(instance).get(self.name)
        # The class attribute is None, the default of the dataclass.
        return cast(Out, self.default if value is None and instance is not None else value)

    def __set__(self, instance: object, value: In) -> None:
        vars(instance)[self.name] = None if value is None else self.rule.argument(self.name, value)

    @property
    def flag(self) -> str:
        """The flag, such as `--slice` or `--fresh/--no-fresh`."""
        return self._flag or flag(self.name)

    @property
    def setting(self) -> str:
        """The name of the setting. Empty if there is none."""
        return self.name.removesuffix("_s") if {"config", LIMITS} & {*self.commands} else ""

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"TFMON_{self.setting.upper()}"


@dataclass(kw_only=True, eq=False, repr=False)
class Options:
    """The values of options."""

    @classmethod
    def declared(cls) -> list[Option[Any, Any]]:
        """Return the options, with inherited options last."""
        names = sorted((field.name for field in fields(cls)), key=lambda name: name not in vars(cls))
        return [cls.declaration(name) for name in names]

    @classmethod
    def declaration(cls, name: str) -> Option[Any, Any]:
        """Return an option."""
        option = inspect.getattr_static(cls, name)
        assert isinstance(option, Option)
        return option

    def has(self, name: str) -> bool:
        """Return whether an option is set."""
        return vars(self).get(name) is not None

    def validate(self, command: str, names: frozenset[str]) -> None:
        """Raise UsageError for a conflict. The caller has set the options `names`."""


def need(condition: object) -> None:
    """Raise ValueError unless a condition holds."""
    if not condition:
        raise ValueError


def seconds(least: float, most: float = YEAR_S, *, above: bool = False) -> ValueRule[float]:
    """Return the rule for a time."""
    return number("seconds", "a time in seconds", least, most, above=above)


def whole(least: int, most: float = LARGEST, name: str = "number") -> ValueRule[int]:
    """Return the rule for integers."""

    def read(value: object) -> int:
        need(isinstance(value, numbers.Integral) and least <= _real(value) <= most)
        return int(cast(int, value))

    return ValueRule(name, f"a whole number from {least}{_end(most)}", read, parse=int)


def number(name: str, noun: str, least: float, most: float = LARGEST, *, above: bool = False) -> ValueRule[float]:
    """Return the rule for numbers."""

    def read(value: object) -> float:
        result = _real(value)
        need(least <= result <= most and not (above and result == least))
        return result

    bounds = f"above {least:g}" if above else f"from {least:g}"
    return ValueRule(name, f"{noun} {bounds}{_end(most)}", read, parse=float)


def _real(value: object) -> float:
    need(isinstance(value, numbers.Real) and not isinstance(value, bool))
    try:
        return float(cast(float, value))
    except OverflowError:
        raise ValueError from None


def _end(most: float) -> str:
    return f" to {most:g}" if most < YEAR_S else ", a year at most" if most == YEAR_S else ""


def share(least: float, why: str = "") -> ValueRule[float]:
    """Return the rule for shares below 1."""
    more = f"; {why}" if why else ""
    return ValueRule(
        "percent",
        f"a share from {least:g} to below 1, such as 0.05{more}",
        number("", "", least, math.nextafter(1, 0)).read,
        parse=lambda text: float(text.strip().removesuffix("%")) / 100,
        in_text=f"a percentage from {100 * least:g}% to below 100%, such as 5%{more}",
    )


def one_of(name: str, names: Callable[[], Sequence[str]]) -> ValueRule[str]:
    """Return the rule for words of a list."""

    def read(value: object) -> str:
        need(isinstance(value, str) and value in names())
        return str(value)

    return ValueRule(name, lambda: f"one of {', '.join(names())}", read, choices=names)


def _bool(value: object) -> bool:
    need(isinstance(value, bool))
    return bool(value)


def _progress(value: object) -> bool | Callable[[str], object]:
    return value if callable(value) else _bool(value)


YES_OR_NO = ValueRule("boolean", "True or False", _bool, parse=click.BOOL, in_text="true or false")
PROGRESS = ValueRule("progress", "True or False, or a function that takes each line", _progress)


def text_of(value: object) -> str:
    """Return a non-empty text or path."""
    need(isinstance(value, str | os.PathLike) and value)
    return str(os.fspath(cast(str, value)))


def links_of(value: object) -> tuple[str, ...]:
    """Return existing paths in the working folder."""
    paths = tuple(map(os.path.relpath, texts("").read(value)))
    need(all(os.path.lexists(path) and not path.startswith(os.pardir) and path != os.curdir for path in paths))
    return paths


def line_of(value: object) -> str:
    """Return text that may be empty."""
    need(isinstance(value, str))
    return str(value)


def program_of(value: object) -> str:
    """Return an existing program, or ""."""
    need(value == "" or find_program(text_of(value)))
    return str(value)


def find_program(text: str) -> str | None:
    """Return the path of a program, if any."""
    return shutil.which(os.path.expanduser(text))  # noqa: PTH111 - it may be a bare command


def file_or_bool(value: object) -> bool | Path:
    """Return a bool or path."""
    return value if isinstance(value, bool) else Path(text_of(value))


def texts(such_as: str, none: str = "") -> ValueRule[tuple[str, ...]]:
    """Return the rule for lists of text."""

    def read(value: object) -> tuple[str, ...]:
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            raise ValueError
        need(value or not none or isinstance(value, tuple))
        return tuple(map(text_of, value))

    return ValueRule("list", f"a list of text, such as {such_as}{none}", read)


def places_of(value: object) -> tuple[str, ...]:
    """Return one or more devices."""
    return texts("").read([value] if isinstance(value, str) else value)


def settings_of(value: object) -> tuple[str, ...]:
    """Return settings such as `prefetch=2`."""

    def word(setting: object) -> str:
        setting = plain(setting)
        need(isinstance(setting, bool | int | float | str))
        return exact(cast(KnobValue, setting))

    return _assignments(value, word)


def values_of(value: object) -> tuple[str, ...]:
    """Return values such as `batch_size=32,128`."""

    def word(values: object) -> str:
        if isinstance(values, Mapping) or not isinstance(values, Iterable):
            raise ValueError
        return values if isinstance(values, str) else ",".join(exact(plain(value)) for value in values)

    return _assignments(value, word)


def _assignments(value: object, word: Callable[[object], str]) -> tuple[str, ...]:
    if isinstance(value, tuple):
        return tuple(map(line_of, value))
    if not isinstance(value, Mapping):
        raise ValueError
    return tuple(f"{line_of(knob)}={word(setting)}" for knob, setting in value.items())


def concerns_of(value: object) -> tuple[str, ...]:
    """Return the names of concerns."""
    names = texts("").read(value)
    need((names or isinstance(value, tuple)) and all(name in FAIL_ON for name in names))
    return names


def causes_of(value: object) -> tuple[str, ...]:
    """Return the ids of causes."""
    from tfmon.analysis.cause_kinds import KINDS

    ids = [id.strip() for id in value.split(",")] if isinstance(value, str) else texts("").read(value)
    need(all(id in KINDS for id in ids if id))
    return tuple(filter(None, ids))


def plain(value: Any) -> Any:  # noqa: ANN401 - a number of any library
    """Convert NumPy numbers to Python."""
    return value.item() if isinstance(value, numbers.Number) and hasattr(value, "item") else value
