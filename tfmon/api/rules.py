"""Rules for the values of options, arguments and settings, for every caller.

A rule is a Click type, which parses text. Python values go through `read`: NumPy numbers are numbers, text is not.
A wrong value is a UsageError with the name that its caller used and the allowed values.
"""

from __future__ import annotations

import contextlib
import numbers
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import click

from tfmon.analysis.health import FAIL_ON
from tfmon.errors import TfmonError, UsageError
from tfmon.model.knobs import exact
from tfmon.model.race import MODES

if TYPE_CHECKING:
    Kind: TypeAlias = click.ParamType[Any]
else:
    Kind = click.ParamType  # generic for type checkers alone, and only since Click 8.3

YEAR_S, WEEK_MIN = 365 * 86_400, 10_080
LARGEST = 1e300
LONGEST_VALUE = 80


class ValueRule(Kind):
    """The allowed values: a reader of values, and one of text before it; both raise ValueError."""

    def __init__(
        self,
        name: str,
        allowed: str | Callable[[], str],
        read: Callable[[Any], Any],
        *,
        parse: Callable[[str], object] = str,
        in_text: str = "",
        optional: bool = True,
    ) -> None:
        """Create a rule; `allowed` is a noun for the allowed values, `in_text` for text, if different."""
        self.name, self.read, self.parse, self.optional = name, read, parse, optional
        self._allowed, self._in_text = allowed, in_text

    def allowed(self, *, in_text: bool = False) -> str:
        """Return a noun for the allowed values, or for the allowed text."""
        text = self._allowed if isinstance(self._allowed, str) else self._allowed()
        return self._in_text or text if in_text else text

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Parse text, or raise click.BadParameter with the allowed values."""
        try:
            return self.read(self.parse(value) if isinstance(value, str) else value)
        except ValueError:
            self.fail(f"{value!r} is not {self.allowed(in_text=True)}", param, ctx)


def need(condition: object) -> None:
    """Raise ValueError unless a condition holds."""
    if not condition:
        raise ValueError


def number(name: str, what: str, least: float, most: float = LARGEST, *, above: bool = False) -> ValueRule:
    """Return the rule for numbers from `least` or above it; for integers if `least` is one."""
    kind, whole = (int, numbers.Integral) if isinstance(least, int) else (float, numbers.Real)

    def read(value: Any) -> float:  # noqa: ANN401
        need(not isinstance(value, bool))
        need(isinstance(value, whole))
        need(least <= value <= most and not (above and value == least))
        return kind(value)

    bounds = f"above {least:g}" if above else f"from {least:g}"
    ends = f" to {most:g}" if most < YEAR_S else ", a year at most" if most == YEAR_S else ""
    return ValueRule(name, f"{what} {bounds}{ends}", read, parse=kind)


def share(least: float, why: str = "", *, optional: bool = True) -> ValueRule:
    """Return the rule for shares below 1, written as percentages; `why` explains the least one."""

    def read(value: Any) -> float:  # noqa: ANN401
        need(not isinstance(value, bool))
        need(isinstance(value, numbers.Real))
        need(least <= value < 1)
        return float(value)

    more = f"; {why}" if why else ""
    return ValueRule(
        "percent",
        f"a share from {least:g} to below 1, such as 0.05{more}",
        read,
        parse=lambda text: float(text.strip().removesuffix("%")) / 100,
        in_text=f"a percentage from {100 * least:g}% to below 100%, such as 5%{more}",
        optional=optional,
    )


def one_of(name: str, names: Callable[[], Sequence[str]]) -> ValueRule:
    """Return the rule for the words of a list, which is created when a word must be checked."""

    def read(value: Any) -> str:  # noqa: ANN401
        need(isinstance(value, str) and value in names())
        return str(value)

    return ValueRule(name, lambda: f"one of {', '.join(names())}", read)


def yes_or_no(*, optional: bool = False) -> ValueRule:
    """Return the rule for True and False, written as Click takes a boolean."""

    def read(value: Any) -> bool:  # noqa: ANN401
        need(isinstance(value, bool))
        return bool(value)

    def parse(text: str) -> object:
        try:
            return click.BOOL.convert(text, None, None)
        except click.BadParameter:
            raise ValueError from None

    return ValueRule("boolean", "True or False", read, parse=parse, in_text="true or false", optional=optional)


def text_of(value: Any) -> str:  # noqa: ANN401
    """Return non-empty text, also of a pathlib path."""
    need(isinstance(value, str | os.PathLike))
    result = os.fspath(value)
    need(isinstance(result, str) and result)
    return str(result)


def command_of(value: Any) -> str:  # noqa: ANN401
    """Return a shell command; it may be empty."""
    need(isinstance(value, str))
    return str(value)


def program_of(value: Any) -> str:  # noqa: ANN401
    """Return a program by its path or as found by the shell; "" stays."""
    need(value == "" or shutil.which(os.path.expanduser(text_of(value))))  # noqa: PTH111 - it may be a bare command
    return str(value)


def file_or_bool(value: Any) -> bool | Path:  # noqa: ANN401
    """Return whether there is a file, or its path."""
    return value if isinstance(value, bool) else Path(text_of(value))


def words(such_as: str, none: str = "") -> ValueRule:
    """Return the rule for lists of text; `none` is the word for an empty list, if that is not allowed."""

    def read(value: Any) -> tuple[str, ...]:  # noqa: ANN401
        need(isinstance(value, Sequence) and not isinstance(value, str | bytes) and (value or not none))
        return tuple(map(text_of, value))

    return ValueRule("list", f"a list of text, such as {such_as}{none}", read)


def places_of(value: Any) -> tuple[str, ...]:  # noqa: ANN401
    """Return a place, or several, as a tuple."""
    return tuple(words("").read([value] if isinstance(value, str) else value))


def settings_of(value: Any) -> tuple[str, ...]:  # noqa: ANN401
    """Return a dict of settings in the notation of the command line, such as `prefetch=2`."""
    need(isinstance(value, Mapping))
    result = {knob: plain(one) for knob, one in value.items()}
    need(all(isinstance(knob, str) and isinstance(one, bool | int | float | str) for knob, one in result.items()))
    return tuple(f"{knob}={exact(one)}" for knob, one in result.items())


def values_of(value: Any) -> tuple[str, ...]:  # noqa: ANN401
    """Return a dict of the values of each knob in the notation of the command line: `batch_size=32,128`."""
    need(isinstance(value, Mapping))
    result = {}
    for knob, values in value.items():
        need(isinstance(values, Iterable) and not isinstance(values, Mapping))
        result[knob] = values if isinstance(values, str) else ",".join(exact(plain(one)) for one in values)
    return tuple(f"{knob}={values}" for knob, values in result.items())


def fail_on_of(value: Any) -> tuple[str, ...]:  # noqa: ANN401
    """Return the concerns that end a race, by the names of `--fail-on`."""
    names = words("").read(value)
    need(names and all(one in FAIL_ON for one in names))
    return tuple(FAIL_ON[one] for one in names)


def plain(value: Any) -> Any:  # noqa: ANN401
    """Convert NumPy numbers to Python; return other values unchanged."""
    return value.item() if isinstance(value, numbers.Number) and hasattr(value, "item") else value


LEAST_CI = 0.025
"""No interval with one process of each lane is narrower: see `analysis.statistics.between_processes`."""
LEAST_CI_OF_SWEEP = 0.01
"""A narrower interval would take too many processes."""
PYTHON = ValueRule("path", "a program that can be run; name a Python that has TensorFlow", program_of)
COMMAND = ValueRule("command", "a command, or bell, osc9 or osc777", command_of)
SCENARIO = ValueRule("scenario", "a name that `tfmon list` knows, or the path of a scenario", text_of)
SLICE = number("seconds", "a time in seconds", 0.2, 60)
RULES = {
    "scenario": SCENARIO,
    "lanes": words('["cpu", "gpu:0,batch_size=256"]', "; None stands for the default lanes"),
    "settings": ValueRule("dict", 'a dict, such as {"prefetch": 2}', settings_of),
    "seconds": number("seconds", "a time in seconds", 0.0, YEAR_S, above=True),
    "steps": number("number", "a whole number", 1),
    "command": words('["python", "train.py"]'),
    "mode": one_of("mode", lambda: MODES),
    "slice_s": SLICE,
    "until_ci": share(LEAST_CI, "equal processes differ, so one process of each lane can tell no less"),
    "fail_on": ValueRule(
        "concerns", f"one or more of {','.join(FAIL_ON)}", fail_on_of, parse=lambda text: text.split(",")
    ),
    "margin": share(0.001),
    "slower_than": share(0.001, optional=False),
    "more_memory_than": share(0.001),
    "fresh": yes_or_no(optional=True),
    "wait_idle": number("minutes", "a time in minutes", 0.0, WEEK_MIN),
    "in_place": yes_or_no(),
    "python": ValueRule("path", "the path of a Python that has TensorFlow", text_of),
    "record": ValueRule("path", "True, False, or the path of a new file", file_or_bool, optional=False),
    "check": yes_or_no(),
    "force": yes_or_no(),
    "path": ValueRule("path", "the path of a new file", text_of, optional=False),
    "wait": yes_or_no(),
}
SWEEP_RULES = {
    **RULES,
    "over": ValueRule(
        "dict", 'a dict of lists or ranges, {"batch_size": [32, 128]} or {"batch_size": "16..4096"}', values_of
    ),
    "on": ValueRule("place", 'a place, or a list of places, such as ["cpu", "gpu:0"]', places_of),
    "until_ci": share(LEAST_CI_OF_SWEEP),
    "limit_s": number("seconds", "a time in seconds", 1.0, YEAR_S),
    "everything": yes_or_no(),
    "record": ValueRule("path", "the path of a new file", text_of),
    "resume": ValueRule("path", "the file of a sweep, or `last`", text_of),
    "ray": ValueRule("address", "HOST:PORT of the head of a cluster", text_of),
    "ray_python": ValueRule("path", "the path of a Python that has Ray", text_of),
    "ray_cpus": number("number", "a number of CPUs", 0.0, 100_000),
}


def read(rules: Mapping[str, ValueRule], /, **given: object) -> dict[str, Any]:
    """Return the Python arguments that have a rule as options, None unchanged; raises UsageError."""
    read = {}
    for name, value in given.items():
        if name not in rules:
            continue
        try:
            read[name] = None if value is None and rules[name].optional else rules[name].read(value)
        except ValueError:
            refuse(name, value, f"it is {rules[name].allowed()}")
    return read


def refuse(name: str, value: object, allowed: str) -> NoReturn:
    """Raise UsageError for an argument."""
    shown = repr(value)
    shown = shown if len(shown) <= LONGEST_VALUE else shown[: LONGEST_VALUE - 1] + "…"
    raise UsageError(f"{name}={shown} is not possible", allowed)


FLAGS = {"lanes": "--lane", "settings": "--set", "slice_s": "--slice", "limit_s": "--limit", "everything": "--all"}


def flag(name: str) -> str:
    """Return the flag of an argument."""
    return FLAGS.get(name, f"--{name.replace('_', '-')}")


@contextlib.contextmanager
def named_as_arguments() -> Iterator[None]:
    """Replace flags by arguments in the text of a TfmonError; `--gpus` is Docker's."""
    names = {flag(name): name for name in SWEEP_RULES}

    def rename(text: str) -> str:
        result = re.compile(r"(?<!\S)(?!--gpus)--[a-z][a-z-]*")
        return result.sub(lambda one: names.get(one[0], one[0][2:].replace("-", "_")), text)

    try:
        yield
    except TfmonError as error:
        error.message, error.hint = rename(error.message), rename(error.hint)
        raise
