"""The arguments of tfmon's functions, checked at the door: a wrong one is a UsageError that says what is allowed.

Numbers of NumPy are numbers. Messages of the code that the command line shares name the arguments, not the flags.
"""

from __future__ import annotations

import contextlib
import math
import numbers
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tfmon.errors import TfmonError, UsageError
from tfmon.model.knobs import exact

NAMES = {
    "lane": "lanes",
    "set": "settings",
    "slice": "slice_s",
    "limit": "limit_s",
    "all": "everything",
    "gpus": "--gpus",
}
"""Arguments that are not called as their flag; `--gpus` is Docker's."""
LONGEST_VALUE = 80


@contextlib.contextmanager
def named_as_arguments() -> Iterator[None]:
    """Name arguments in place of flags in the text of a TfmonError."""
    try:
        yield
    except TfmonError as error:
        error.message, error.hint = _without_flags(error.message), _without_flags(error.hint)
        raise


def _without_flags(text: str) -> str:
    return re.sub(r"(?<!\S)--([a-z][a-z-]*)", lambda flag: NAMES.get(flag[1], flag[1].replace("-", "_")), text)


def refuse(name: str, value: object, allowed: str) -> NoReturn:
    """Raise UsageError for an argument."""
    told = repr(value)
    told = told if len(told) <= LONGEST_VALUE else told[: LONGEST_VALUE - 1] + "…"
    raise UsageError(f"{name}={told} is not possible", allowed)


def number(name: str, value: object, allowed: str, least: float, most: float) -> float | None:
    """Return a number within bounds, which are allowed, as a float; None for None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not least <= float(value) <= most:
        refuse(name, value, allowed)
    return float(value)


def seconds(name: str, value: object, least: float, most: float) -> float | None:
    """Return a time in seconds."""
    allowed = f"it is a time in seconds, {f'from {least:g} ' if least else ''}up to {most:g}"
    return number(name, value, allowed, least or math.ulp(0), most)


def share(name: str, value: object, least: float) -> float | None:
    """Return a share of less than 1."""
    return number(name, value, f"it is a share from {least:g} to 1, such as 0.05", least, 1 - 1e-9)


def count(name: str, value: object) -> int | None:
    """Return a whole number from 1."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        refuse(name, value, "it is a whole number from 1")
    return int(value)


def yes_or_no(**values: object) -> None:
    """Refuse what is neither True nor False."""
    for name, value in values.items():
        if not isinstance(value, bool):
            refuse(name, value, "it is True or False")


def words(name: str, value: object, such_as: str) -> tuple[str, ...]:
    """Return a sequence of text as a tuple."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
        refuse(name, value, f"it is a list, such as {such_as}")
    found = tuple(os.fspath(one) if isinstance(one, os.PathLike) else one for one in value)
    return found if all(isinstance(one, str) for one in found) else refuse(name, value, f"such as {such_as}")


def settings(name: str, value: object) -> tuple[str, ...]:
    """Return settings as the command line takes them, such as `prefetch=2`; none for None."""
    such_as = 'it is a dict, such as {"prefetch": 2}'
    if value is not None and not isinstance(value, Mapping):
        refuse(name, value, such_as)
    found = {knob: plain(one) for knob, one in (value or {}).items()}
    if not all(isinstance(knob, str) and isinstance(one, bool | int | float | str) for knob, one in found.items()):
        refuse(name, value, such_as)
    return tuple(f"{knob}={exact(one)}" for knob, one in found.items())


def plain(value: Any) -> Any:  # noqa: ANN401 - whatever a caller gives
    """Return a number of NumPy as one of Python; anything else as it is."""
    return value.item() if isinstance(value, numbers.Number) and hasattr(value, "item") else value


def file_or_bool(name: str, value: object) -> Path | None:
    """Return the file that is named; None for True and False."""
    if value is None:
        refuse(name, value, "it is True, False, or the path of a new file")
    return None if isinstance(value, bool) else Path(path(name, value) or "")


def path(name: str, value: object) -> str | None:
    """Return a path as text; None for None."""
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike):
        refuse(name, value, "it is a path")
    found = os.fspath(value)
    return found if isinstance(found, str) and found else refuse(name, value, "it is a path")
