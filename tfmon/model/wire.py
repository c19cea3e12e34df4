"""The lines on the pipes: one JSON object each, checked field by field when it is read.

Metric lines (child to monitor) are the events of a lane; knob lines (monitor to child) are `Request`s. Both
carry `v`, the protocol version, and `type`. Unknown keys are ignored, so that a newer child can say more.
Non-finite floats, which JSON does not have, travel as the words "nan", "inf" and "-inf". Text is cleaned of
control codes as it is read, so that nothing behind this module can meet one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeAlias, get_args

from tfmon.model.knobs import KnobValue
from tfmon.model.lane_events import PROTOCOL, FromLane
from tfmon.model.plausible import implausible
from tfmon.model.text import clean

MAX_LINE_BYTES = 65_536
"""Longest line that is read; the reader drops and counts what is longer."""
LARGEST_INT = 2**63
"""Of either sign: larger ones, which JSON may hold, are no number that a lane can mean."""


class WireError(ValueError):
    """A line that is not what the protocol says; the text says what was wrong."""


# ---------------------------------------------------------------- requests, from the monitor to a child


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """What the child is to train, and on what. The first request, but for Prepare."""

    scenario: str
    """Path of the scenario file."""
    device: str
    """`cpu` or `gpu`; which GPU is settled by the environment."""
    settings: dict[str, KnobValue] = field(default_factory=dict)
    steps: int | None = None
    """Steps to race before the child finishes by itself; None for no end."""
    environment: dict[str, str] = field(default_factory=dict)
    """What is to be set before a device is touched; empty where the child was started with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """Load TensorFlow, at the lowest priority, touch no device, and wait for Assign; answered by Prepared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetKnob:
    """Change a live knob; answered by KnobApplied or KnobRefused with the same number."""

    request: int
    knob: str
    value: KnobValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Train on: the start of the race, or the end of a pause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSlice:
    """Train for one slice while the other lanes stand still, then hold; answered by SliceEnded."""

    round: int
    """The round: slices of the same round are compared with each other."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Stop at the next step boundary and use no CPU until Run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Train some steps under TensorFlow's profiler; answered by Profiled or ProfileFailed."""

    folder: str
    """An empty folder for the profile's files."""
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportStack:
    """Tell where the threads stand; answered by StackReported. For scripts: a scenario's child heeds a signal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End now; nothing is lost."""


Request: TypeAlias = Assign | Prepare | SetKnob | Run | RunSlice | Pause | Profile | ReportStack | Stop

_EVENTS = {cls.__name__: cls for cls in get_args(FromLane)}
_REQUESTS = {cls.__name__: cls for cls in get_args(Request)}


def encode(message: FromLane | Request) -> bytes:
    """Write a message as one line, with its newline."""
    body: dict[str, Any] = {"v": PROTOCOL, "type": type(message).__name__}
    for part in fields(message):
        if part.name != "lane":
            body[part.name] = _plain(getattr(message, part.name))
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def decode_event(line: bytes, lane: str) -> FromLane:
    """Read a metric line.

    Errors: WireError for anything but an event of this protocol version with fields of the right types, and for
    figures that cannot be.
    """
    event: FromLane = _decode(line, _EVENTS, {"lane": lane})
    if wrong := implausible(event):
        raise WireError(wrong)
    return event


def decode_request(line: bytes) -> Request:
    """Read a knob line.

    Errors: WireError for anything but a request of this protocol version with fields of the right types.
    """
    request: Request = _decode(line, _REQUESTS, {})
    return request


def _decode(line: bytes, kinds: Mapping[str, type], given: Mapping[str, str]) -> Any:  # noqa: ANN401
    try:
        body = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise WireError(f"not JSON: {type(error).__name__}") from error
    if not isinstance(body, dict):
        raise WireError("not a JSON object")
    if isinstance(body.get("v"), bool) or body.get("v") != PROTOCOL:
        raise WireError(f"protocol {body.get('v')!r:.20}, expected {PROTOCOL}")
    kind = kinds.get(str(body.get("type")))
    if kind is None:
        raise WireError(f"unknown type {body.get('type')!r:.40}")
    values: dict[str, Any] = dict(given)
    for part in fields(kind):
        if part.name in given:
            continue
        if part.name in body:
            values[part.name] = _checked(kind.__name__, part.name, str(part.type), body[part.name])
        elif part.default is MISSING and part.default_factory is MISSING:
            raise WireError(f"{kind.__name__} without {part.name}")
    return kind(**values)


def _plain(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def _checked(kind: str, name: str, annotation: str, value: object) -> object:
    if value is None and annotation.endswith(" | None"):
        return None
    try:
        return _READERS[annotation.removesuffix(" | None")](value)
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError(f"{kind}.{name} is not {annotation}") from error


def _int(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    if abs(value) > LARGEST_INT:
        raise OverflowError
    return value


def _bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _float(value: object) -> float:
    if value in ("nan", "inf", "-inf"):
        return float(str(value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    return float(value)


def _str(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return clean(value)


def _knob_value(value: object) -> KnobValue:
    if isinstance(value, int) and not isinstance(value, bool):
        return _int(value)
    return value if isinstance(value, bool | float) else _str(value)


def _items(value: object) -> list[tuple[str, object]]:
    if not isinstance(value, dict):
        raise TypeError
    return list(value.items())


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _words(value: object) -> tuple[str, ...]:
    return tuple(_str(item) for item in _list(value))


_READERS: dict[str, Callable[[object], object]] = {
    "int": _int,
    "bool": _bool,
    "float": _float,
    "str": _str,
    "KnobValue": _knob_value,
    "tuple[str, ...]": _words,
    "tuple[KnobValue, ...]": lambda value: tuple(_knob_value(item) for item in _list(value)),
    "dict[str, float]": lambda value: {_str(key): _float(item) for key, item in _items(value)},
    "dict[str, KnobValue]": lambda value: {_str(key): _knob_value(item) for key, item in _items(value)},
    "dict[str, str]": lambda value: {_str(key): _str(item) for key, item in _items(value)},
    "dict[int, int]": lambda value: {int(key): _int(item) for key, item in _items(value)},
}
