"""Between a frozen dataclass and one line of JSON, by the types of its fields.

Own code, because a recording promises what the libraries for this do not do together: every figure comes back as
it was (a whole number where a float may stand stays one, so that a replay equals the race to the digit), numbers
that JSON lacks (nan, inf) and keys that are no text survive, a union may hold several dataclasses, and all text is
made safe to show as it is read. A new kind of event, or a new field with a default, needs nothing here.

Every dataclass carries its `type`. A dict whose keys are not text is a list of pairs.
"""

from __future__ import annotations

import functools
import json
import math
import types
import typing
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, TypeAlias, get_args, get_origin

from tfmon.model.text import clean

LONGEST_TEXT = 65_536
LARGEST_INT = 2**63 - 1
"""Largest whole number that is read; nothing that is measured comes near it."""
_WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_Reader: TypeAlias = Callable[[object], object]


class CodecError(ValueError):
    """A value that is not what its type says; the text says where and what was expected."""


def encode(value: object) -> bytes:
    """Write a dataclass as one line, with its newline."""
    return json.dumps(plain(value), separators=(",", ":"), allow_nan=False).encode() + b"\n"


def plain(value: object) -> Any:  # noqa: ANN401
    """Return a value as what JSON knows."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            "type": type(value).__name__,
            **{part: plain(getattr(value, part)) for part in _names(type(value))},
        }
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: plain(item) for key, item in value.items()}
        return [[plain(key), plain(item)] for key, item in value.items()]
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def parse(line: bytes) -> object:
    """Read a line of JSON.

    Errors: CodecError for what is none.
    """
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CodecError(f"not JSON ({type(error).__name__})") from None


def read(value: object, kind: object) -> Any:  # noqa: ANN401
    """Return what `plain` was given, where that was of this type: a dataclass, or a union of some.

    Errors: CodecError for anything else.
    """
    return _reader(kind)(value)


@functools.cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(part.name for part in fields(kind))


@functools.cache
def _reader(kind: Any) -> _Reader:  # noqa: ANN401 - a type, a union or an alias
    """Return what reads values of a type."""
    if isinstance(kind, type) and is_dataclass(kind):
        return _dataclass_reader(kind)
    if kind in _SCALARS:
        return _SCALARS[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _union_reader(arguments)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return functools.partial(_read_items, _reader(arguments[0]))
    if origin is tuple:
        return functools.partial(_read_parts, tuple(map(_reader, arguments)))
    if origin is dict:
        return functools.partial(_read_pairs, _reader(arguments[0]), _reader(arguments[1]))
    if origin is Literal:
        return functools.partial(_read_choice, arguments)
    raise TypeError(f"{kind} cannot be recorded")


def _dataclass_reader(kind: type) -> _Reader:
    parts = {part.name: part for part in fields(kind)}
    needed = {name for name, part in parts.items() if part.default is MISSING and part.default_factory is MISSING}
    readers: dict[str, _Reader] = {}

    def read_dataclass(value: object) -> object:
        if not isinstance(value, dict) or value.get("type") != kind.__name__:
            raise CodecError(f"no {kind.__name__}")
        if not readers:  # late: a type may hold others that are declared below it
            hints = typing.get_type_hints(kind)
            readers.update({name: _reader(hints[name]) for name in parts})
        if unknown := value.keys() - parts.keys() - {"type"}:
            raise CodecError(f"{kind.__name__} has no {cut(min(unknown))}")
        if missing := needed - value.keys():
            raise CodecError(f"{kind.__name__} without {min(missing)}")
        found = {}
        for name in parts.keys() & value.keys():
            try:
                found[name] = readers[name](value[name])
            except CodecError as error:
                raise CodecError(f"{kind.__name__}.{name}: {error}") from None
        return kind(**found)

    return read_dataclass


def _union_reader(arguments: tuple[Any, ...]) -> _Reader:
    """Read dataclasses by their `type`, anything else by the first kind that takes it; words are text, not nan."""
    arguments = tuple(sorted(arguments, key=lambda one: one is not str))
    named = {one.__name__: _reader(one) for one in arguments if isinstance(one, type) and is_dataclass(one)}
    others = [_reader(one) for one in arguments if not (isinstance(one, type) and is_dataclass(one))]

    def read_union(value: object) -> object:
        if named and isinstance(value, dict) and "type" in value:
            reader = named.get(str(value["type"]))
            if reader is None:
                raise CodecError(f"unknown type {cut(value['type'])}")
            return reader(value)
        for reader in others:
            try:
                return reader(value)
            except CodecError as error:
                problem = error
        raise problem if len(others) == 1 and not named else CodecError(f"{cut(value)} is not possible here")

    return read_union


def _read_items(reader: _Reader, value: object) -> tuple[object, ...]:
    if not isinstance(value, list):
        raise CodecError("no list")
    return tuple([reader(item) for item in value])


def _read_parts(readers: tuple[_Reader, ...], value: object) -> tuple[object, ...]:
    if not isinstance(value, list) or len(value) != len(readers):
        raise CodecError(f"no list of {len(readers)}")
    return tuple([reader(item) for reader, item in zip(readers, value, strict=True)])


def _read_pairs(key: _Reader, item: _Reader, value: object) -> dict[object, object]:
    if isinstance(value, dict):
        return {key(name): item(one) for name, one in value.items()}
    if not isinstance(value, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        raise CodecError("no object, and no list of pairs")
    return {key(name): item(one) for name, one in value}


def _read_choice(choices: tuple[object, ...], value: object) -> object:
    if value not in choices:
        raise CodecError(f"{cut(value)} is none of {', '.join(map(str, choices))}")
    return value


def _read_int(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > LARGEST_INT:
        raise CodecError(f"{cut(value)} is no whole number")
    return value


def _read_float(value: object) -> float:
    if isinstance(value, str) and value in _WORDS:
        return _WORDS[value]
    if isinstance(value, float):
        return value
    return _read_int(value)


def _read_bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise CodecError(f"{cut(value)} is not true or false")
    return value


def _read_text(value: object) -> str:
    if not isinstance(value, str):
        raise CodecError(f"{cut(value)} is no text")
    return clean(value, LONGEST_TEXT)


def _read_none(value: object) -> None:
    if value is not None:
        raise CodecError(f"{cut(value)} is not null")


def cut(value: object) -> str:
    """Write a value for an error line."""
    return clean(repr(value)[:60], 40)


_SCALARS: dict[object, _Reader] = {
    int: _read_int,
    float: _read_float,
    bool: _read_bool,
    str: _read_text,
    type(None): _read_none,
}
