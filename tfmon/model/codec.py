"""Convert dataclasses to JSON lines and back, checked against their type hints.

A dataclass has its class name as `type`. A dict with keys that are not text is a list of pairs. Non-finite floats
are the words "nan", "inf" and "-inf". Text is cleaned when it is read, so no other module receives control codes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import re
import time
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, cast, get_args, get_origin

from tfmon.model.event_base import Event, LaneEvent, Range, kinds
from tfmon.model.lane_events import PROTOCOL
from tfmon.model.requests import Request

LONGEST_TEXT = 65_536
LONGEST_MESSAGE_TEXT = 4_000
LARGEST_INT = 2**63 - 1

_WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_UNCHANGED: set[type] = {int, str, bool, type(None)}
_dumps = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_loads = json.JSONDecoder().decode
_Reader: TypeAlias = Callable[[Any], object]


class CodecError(ValueError):
    """The data does not match the declared type."""


_ESCAPES = re.compile(
    # Commands with text. An unterminated command ends with its line.
    r"(?:\x1b[]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\n\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # control sequences
    r"|\x1b[ -/]*[0-~]?"  # short sequences
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: str, limit: int = LONGEST_MESSAGE_TEXT) -> str:
    """Return the text without escape sequences and controls: a lane cannot control the terminal."""
    if len(text) <= limit and text.isascii() and text.isprintable():
        return text
    text = _ESCAPES.sub("", text[: 4 * limit]).replace("\t", "    ")
    text = _CONTROLS.sub("", text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def cut(value: object) -> str:
    """Format a value for an error message."""
    return clean(repr(value)[:60], 40)


def encode(value: object) -> bytes:
    """Return a dataclass as a JSON line without default values."""
    return _dumps(plain(value, whole=False)).encode() + b"\n"


def encode_message(message: LaneEvent | Request) -> bytes:
    """Return a message as a JSON line without the lane."""
    body = {"v": PROTOCOL, **plain(message, whole=False)}
    body.pop("lane", None)
    return _dumps(body).encode() + b"\n"


def plain(value: object, *, whole: bool = True) -> Any:
    """Return a value as JSON types; `whole` includes default values."""
    kind = type(value)
    if kind in _UNCHANGED:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    convert = functools.partial(plain, whole=whole)
    if isinstance(value, dict):
        keys, parts = {*map(type, value)}, value.items()
        if keys <= {str}:
            return {**value} if _unchanged(value.values()) else {key: convert(item) for key, item in parts}
        if keys <= _UNCHANGED and _unchanged(value.values()):
            return [*map(list, parts)]
        return [[convert(key), convert(item)] for key, item in parts]
    if isinstance(value, tuple | list):
        return [*value] if _unchanged(value) else [*map(convert, value)]
    if is_dataclass(kind):
        items: dict[str, Any] = {"type": kind.__name__}
        for name, default in _defaults(kind).items():
            item = getattr(value, name)
            if whole or item != default or type(item) is not type(default):
                items[name] = convert(item)
        return items
    return value


def _unchanged(items: Iterable[object]) -> bool:
    return {*map(type, items)} <= _UNCHANGED


def to_json(value: object) -> Any:
    """Return a value for other programs: without class names, null for NaN, no fields with `json=False`."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    if is_dataclass(value):
        shown = (part.name for part in fields(value) if part.metadata.get("json", True))
        return {name: to_json(getattr(value, name)) for name in shown}
    return value


@functools.cache
def _defaults(kind: type) -> dict[str, object]:
    """Return the defaults by field. A stamp has none, so it is always written."""
    constant = {
        part.name: part.default_factory()
        for part in fields(kind)
        if part.default_factory not in (MISSING, time.monotonic_ns)
    }
    return {part.name: constant.get(part.name, part.default) for part in fields(kind)}


def decode_event(line: bytes, lane: str) -> LaneEvent:
    """Read an event and ignore unknown keys; raises CodecError."""
    body = _parse_message(line)
    body["lane"] = lane
    return cast(LaneEvent, _reader(LaneEvent, False)(body))


def decode_request(line: bytes) -> Request:
    """Read a request; raises CodecError."""
    return cast(Request, _reader(Request, False)(_parse_message(line)))


def _parse_message(line: bytes) -> dict[str, Any]:
    body = parse(line)
    if not isinstance(body, dict):
        raise CodecError("not a JSON object")
    version = body.get("v")
    if version != PROTOCOL or isinstance(version, bool):
        raise CodecError(f"protocol {cut(version)}, expected {PROTOCOL}")
    if "type" not in body:
        raise CodecError("a message without type")
    return body


def parse(line: bytes) -> object:
    """Parse a line of JSON; raises CodecError."""
    try:
        return _loads(line.decode())
    except (ValueError, RecursionError) as error:
        raise CodecError(f"not JSON ({type(error).__name__})") from None


def read(value: object, kind: object, *, strict: bool = True) -> Any:
    """Return the object; `strict` rejects unknown keys. Raises CodecError."""
    return _reader(kind, strict)(value)


@functools.cache
def _reader(kind: Any, strict: bool) -> _Reader:
    if kind is str:
        return functools.partial(_read_text, LONGEST_TEXT if strict else LONGEST_MESSAGE_TEXT)
    if kind in _SCALARS:
        return _SCALARS[kind]
    if kind in (Event, LaneEvent):
        return _union_reader((kind,), strict)
    if isinstance(kind, type) and is_dataclass(kind):
        return _dataclass_reader(kind, strict)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated and isinstance(arguments[1], Range):
        return functools.partial(_read_range, _reader(arguments[0], strict), arguments[1])
    if origin in (typing.Union, types.UnionType):
        return _union_reader(arguments, strict)
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return functools.partial(_read_items, _reader(arguments[0], strict))
    if origin is tuple:
        return functools.partial(_read_parts, tuple(_reader(part, strict) for part in arguments))
    if origin in (dict, Mapping):
        read_each = functools.partial(_read_pairs, *(_reader(part, strict) for part in arguments))
        keys, items = map(_limits_of, arguments)
        return (
            read_each if keys is None or items is None else functools.partial(_read_counts, keys, items, read_each)
        )
    if origin is Literal:
        return functools.partial(_read_choice, arguments)
    raise TypeError(f"{kind} cannot be encoded")


def _dataclass_reader(kind: type, strict: bool) -> _Reader:
    needed = {
        field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING
    }
    implausible = getattr(kind, "implausible", None)
    readers: dict[str, _Reader] = {}

    def read_dataclass(value: object) -> object:
        if not isinstance(value, dict) or value.get("type", kind.__name__) != kind.__name__:
            raise CodecError(f"no {kind.__name__}")
        if not readers:  # late: a hint may name a type that is defined later
            hints = typing.get_type_hints(kind, include_extras=True)
            readers.update({name: _reader(hints[name], strict) for name in _defaults(kind)})
        values = {}
        try:
            for name, item in value.items():
                if name in readers:
                    values[name] = readers[name](item)
        except CodecError as error:
            raise CodecError(f"{kind.__name__}.{name}: {error}") from None
        if strict and (unknown := value.keys() - readers.keys() - {"type"}):
            raise CodecError(f"{kind.__name__} has no {cut(min(unknown))}")
        if not needed <= values.keys():
            raise CodecError(f"{kind.__name__} without {min(needed - values.keys())}")
        result = kind(**values)
        if implausible is not None and (problem := implausible(result)):
            raise CodecError(f"{kind.__name__}: {problem}")
        return result

    return read_dataclass


def _union_reader(arguments: tuple[Any, ...], strict: bool) -> _Reader:
    classes = [argument for argument in arguments if isinstance(argument, type) and is_dataclass(argument)]
    leaves = [leaf for kind in classes for leaf in (kinds(kind) if issubclass(kind, Event) else [kind])]
    by_name = {kind.__name__: _reader(kind, strict) for kind in leaves}
    exact: dict[type, _Reader] = {kind: _reader(kind, strict) for kind in _UNCHANGED if kind in arguments}
    choices = [_reader(argument, strict) for argument in arguments if argument not in classes]
    if len(leaves) == 1 and not any(get_origin(argument) is dict for argument in arguments):
        choices.append(by_name[leaves[0].__name__])  # from `to_json`, without `type`

    def read_union(value: object) -> object:
        if by_name and isinstance(value, dict) and "type" in value:
            reader = by_name.get(str(value["type"]))
            if reader is None:
                raise CodecError(f"unknown type {cut(value['type'])}")
            return reader(value)
        if type(value) in exact:
            return exact[type(value)](value)
        problem = CodecError(f"{cut(value)} is not possible here")
        for reader in reversed(choices):
            try:
                return reader(value)
            except CodecError as error:
                problem = error
        raise problem

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
        return {key(name): item(element) for name, element in value.items()}
    if not isinstance(value, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        raise CodecError("no object, and no list of pairs")
    return {key(name): item(element) for name, element in value}


def _limits_of(kind: Any) -> Range | None:
    """Return the limits of whole numbers, or `None` for another kind."""
    number, limits = get_args(kind) if get_origin(kind) is Annotated else (kind, Range(-LARGEST_INT, LARGEST_INT))
    return limits if number is int else None


def _read_counts(keys: Range, items: Range, read_each: _Reader, value: object) -> object:
    """Read whole numbers at once: a histogram has most numbers of an event. `read_each` describes a mistake."""
    if isinstance(value, list):
        with contextlib.suppress(TypeError, ValueError):
            counts = dict(value)
            whole = len(counts) == len(value) and {*map(type, counts), *map(type, counts.values())} <= {int}
            if whole and (not counts or (_within(keys, counts) and _within(items, counts.values()))):
                return counts
    return read_each(value)


def _within(limits: Range, numbers: Collection[int]) -> bool:
    return limits.low <= min(numbers) and max(numbers) <= limits.high


def _read_choice(choices: tuple[object, ...], value: object) -> object:
    if value not in choices:
        raise CodecError(f"{cut(value)} is not one of {', '.join(map(str, choices))}")
    return value


def _read_range(reader: _Reader, limits: Range, value: object) -> object:
    number: Any = reader(value)
    if not limits.low <= number <= limits.high:  # also nan
        raise CodecError(f"{cut(number)} is not from {limits.low:g} to {limits.high:g}")
    return number


def _read_int(value: object) -> int:
    if type(value) is not int or not -LARGEST_INT <= value <= LARGEST_INT:
        raise CodecError(f"{cut(value)} is not a whole number")
    return value


def _read_float(value: object) -> float:
    if type(value) is float:
        return value
    return _WORDS[value] if isinstance(value, str) and value in _WORDS else _read_int(value)


def _read_exactly(kind: type, expected: str, value: object) -> object:
    if type(value) is not kind:
        raise CodecError(f"{cut(value)} is not {expected}")
    return value


def _read_text(limit: int, value: object) -> str:
    if not isinstance(value, str):
        raise CodecError(f"{cut(value)} is not text")
    return clean(value, limit)


def _read_any(value: object) -> object:
    if isinstance(value, str):
        return clean(value, LONGEST_TEXT)
    if isinstance(value, dict):
        return {clean(key): _read_any(item) for key, item in value.items()}
    return [_read_any(item) for item in value] if isinstance(value, list) else value


_SCALARS: dict[object, _Reader] = {
    Any: _read_any,
    Path: lambda value: Path(_read_text(LONGEST_TEXT, value)),
    int: _read_int,
    float: _read_float,
    bool: functools.partial(_read_exactly, bool, "true or false"),
    type(None): functools.partial(_read_exactly, type(None), "null"),
}
