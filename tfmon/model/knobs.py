"""Knobs: the settings of a lane."""

from __future__ import annotations

import contextlib
import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal, TypeAlias

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.readings import FINITE

FiniteFloat: TypeAlias = Annotated[float, FINITE]
KnobValue: TypeAlias = int | FiniteFloat | str | bool
Settings: TypeAlias = Mapping[str, KnobValue]

_ON = ("on", "true", "yes", "1")
_OFF = ("off", "false", "no", "0")


class KnobError(ValueError):
    """A knob or value that is not allowed."""


@dataclass(frozen=True, slots=True)
class Knob:
    """A setting, with `choices` or a range."""

    name: str
    default: KnobValue
    help: str
    kind: Literal["live", "restart"] = "restart"
    """`live` keeps the running child."""
    choices: tuple[KnobValue, ...] = ()
    """All values, or the steps of a key."""
    low: float | None = None
    high: float | None = None
    words: tuple[str, ...] = ()
    """Allowed words instead of a number."""
    remedies: tuple[KnobValue, ...] = ()
    """Choices that do the same work."""

    def parse(self, text: str) -> KnobValue:
        """Parse text; raises KnobError."""
        word = text.strip().lower()
        if isinstance(self.default, bool):
            if word in _ON + _OFF:
                return word in _ON
            raise self._error(text)
        if word in self.words:
            return word
        for choice in self.choices:
            if word == str(choice).lower():
                return choice
        number = _number(word)
        if number is None or (isinstance(number, float) and not self._takes_fractions()):
            raise self._error(text)
        return self.check(number)

    def check(self, value: object) -> KnobValue:
        """Return an allowed value; raises KnobError."""
        if isinstance(self.default, bool):
            if isinstance(value, bool):
                return value
            raise self._error(value)
        if isinstance(value, str) and (value in self.words or value in self.choices):
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            if self.low is None and self.high is None:
                if value in self.choices:
                    return value
            elif self._in_range(value) and (isinstance(value, int) or self._takes_fractions()):
                return value
        raise self._error(value)

    def allowed(self) -> str:
        """Return the allowed values as text."""
        if isinstance(self.default, bool):
            return "on or off"
        if self.low is None and self.high is None:
            return _either([str(choice) for choice in self.choices])
        kind = "number" if self._takes_fractions() else "whole number"
        if self.high is None:
            span = f"a {kind} from {self.low:g}"
        elif self.low is None:
            span = f"a {kind} up to {self.high:g}"
        else:
            span = f"a {kind} from {self.low:g} to {self.high:g}"
        return _either([*self.words, span])

    def next(self, value: KnobValue, direction: int, *, high: float | None = None) -> KnobValue:
        """Return the value after a key press. Numbers step by powers of two."""
        if isinstance(self.default, bool):
            return not value
        if self.choices:
            if value in self.choices:
                return self.choices[(self.choices.index(value) + direction) % len(self.choices)]
            return self.choices[0 if direction > 0 else -1]
        if isinstance(value, str):
            return value
        top = min((limit for limit in (self.high, high) if limit is not None), default=None)
        below = math.ceil(value) - 1
        moved = 1 << below.bit_length() - 1 if below > 0 else 0
        if direction > 0:
            moved = 1 << max(0, int(value)).bit_length()
        if self.low is not None and moved < self.low:
            return value
        if top is not None and moved > top:
            return value
        return moved

    def _takes_fractions(self) -> bool:
        return isinstance(self.default, float)

    def _in_range(self, value: float) -> bool:
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def _error(self, value: object) -> KnobError:
        return KnobError(f"{self.name}={show(value)} is not possible; {self.name} takes {self.allowed()}")


BATCH_SIZE = Knob("batch_size", default=32, help="Examples in one training step.", kind="live", low=1)
PREFETCH = Knob(
    "prefetch",
    default="auto",
    help="Batches that tf.data prepares ahead of the step; off: each one when it is needed.",
    kind="live",
    choices=("off", 1, 2, "auto"),
    low=1,
    high=1024,
    words=("off", "auto"),
)
PARALLEL_CALLS = replace(
    PREFETCH,
    name="parallel_calls",
    help="Examples that `prepare` works on in parallel; off: one after the other.",
    choices=("off", 2, 4, "auto"),
)
CACHE = Knob(
    "cache",
    default=False,
    help="Keep what `prepare` made in memory, so that it works in the first epoch only.",
    kind="live",
)
GRAPH = Knob("graph", default=True, help="Run the step as one tf.function; off: eagerly, op by op.", kind="live")
XLA = Knob(
    "xla", default=False, help="Compile the tf.function with XLA; each batch size is compiled again.", kind="live"
)
MIXED_PRECISION = Knob(
    "mixed_precision",
    default="off",
    help="Compute in 16 bits while the weights stay in 32.",
    kind="live",
    choices=("off", "bfloat16", "float16"),
)
SYNC_EVERY_STEP = Knob(
    "sync_every_step",
    default=False,
    help="Read the loss after every step, as a `.numpy()` in the loop does; the device then idles.",
    kind="live",
)
THREADS = Knob(
    "threads",
    default="auto",
    help="Threads that one op may use on the CPU (intra-op parallelism).",
    choices=("auto", 1, 2, 4, 8),
    low=1,
    high=1024,
    words=("auto",),
)
GLOBAL, PER_REPLICA = "global", "per-replica"
BATCH_SCOPE = Knob(
    "batch_scope",
    default=GLOBAL,
    help="What batch_size counts on several devices: the examples of all together, or of each one.",
    kind="live",
    choices=(GLOBAL, PER_REPLICA),
)
VARIANT = Knob("variant", default="", help="Which form of the scenario runs.")
INPUT: tuple[Knob, ...] = (BATCH_SIZE, PREFETCH)
PREPARE: tuple[Knob, ...] = (PARALLEL_CALLS, CACHE)
STEP: tuple[Knob, ...] = (GRAPH, XLA, MIXED_PRECISION, SYNC_EVERY_STEP)
MACHINE: tuple[Knob, ...] = (THREADS,)
COMMON: tuple[Knob, ...] = (*INPUT, *PREPARE, *STEP, *MACHINE)
STEPS_PER_EXECUTION = Knob(
    "steps_per_execution",
    default=1,
    help="Steps that Keras runs in one call; callbacks for batches are called once for all of them.",
    choices=(1, 8, 32),
    low=1,
    high=10_000,
)
INTER_THREADS = replace(
    THREADS,
    name="inter_threads",
    help="Operations that may run at the same time on the CPU (inter-op parallelism).",
)
ALLOCATOR = Knob(
    "allocator",
    default="bfc",
    help="Allocator of GPU memory: TensorFlow's own pool, or CUDA's, which does not fragment.",
    choices=("bfc", "cuda_malloc_async"),
)
PYTHON = "python"
LEVERS: tuple[Knob, ...] = (XLA, MIXED_PRECISION, STEPS_PER_EXECUTION, THREADS, INTER_THREADS, ALLOCATOR)
"""Knobs of every script."""


BY_HAND = "in a loop of its own it is the function's: @tf.function(jit_compile=True), or several steps in one call"


def show(value: object) -> str:
    """Format a value as a user types it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def exact(value: KnobValue) -> str:
    """Format a value with all digits."""
    return repr(value) if isinstance(value, float) else show(value)


def short_name(knob: str) -> str:
    """Return a knob's name for titles and panes."""
    return "batch" if knob == BATCH_SIZE.name else knob.replace("_", " ")


def not_offered(name: str, offered: Iterable[str]) -> tuple[str, str]:
    """Return an error about an unknown knob, and the remedy."""
    if name in (XLA.name, STEPS_PER_EXECUTION.name):
        return f"{name} was requested, and the script compiles no model of Keras before it trains", BY_HAND
    names = {*offered, *(knob.name for knob in (*COMMON, *LEVERS))} - {name}
    near = difflib.get_close_matches(name, sorted(names), n=1)
    hint = f"did you mean {near[0]}?" if near else f'report.knob("{name}", …) offers one'
    return f"{name} was requested, and the script has no such knob", hint


def find(knobs: Sequence[Knob], name: str) -> Knob:
    """Return a knob; raises KnobError."""
    for knob in knobs:
        if knob.name == name:
            return knob
    raise KnobError(f"there is no knob {name!r}; this scenario has {_either([knob.name for knob in knobs])}")


def parse_settings(knobs: Sequence[Knob], assignments: Sequence[str]) -> dict[str, KnobValue]:
    """Parse `KNOB=VALUE` words; raises KnobError."""
    return {knob.name: knob.parse(text) for name, text in _split(assignments) for knob in [find(knobs, name)]}


def guess_settings(assignments: Sequence[str]) -> dict[str, KnobValue]:
    """Parse a script's `KNOB=VALUE` words; raises KnobError."""
    return {name: _guess(name, text) for name, text in _split(assignments)}


def _split(assignments: Sequence[str]) -> list[tuple[str, str]]:
    result: dict[str, str] = {}
    for word in assignments:
        name, equals, text = (part.strip() for part in word.partition("="))
        if not equals or not name:
            raise KnobError(f"{word!r} is not KNOB=VALUE")
        if result.setdefault(name, text) != text:
            raise KnobError(f"{name} is named twice, {result[name]} and {text}; name one value")
    return list(result.items())


def _guess(name: str, text: str) -> KnobValue:
    for knob in (*COMMON, *LEVERS):
        if knob.name == name:
            with contextlib.suppress(KnobError):  # the script defines the knob differently
                return knob.parse(text)
    if text.lower() in ("on", "off", "true", "false"):
        return text.lower() in _ON
    number = _number(text)
    return text if number is None else number


def _number(text: str) -> float | None:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return None


def _either(names: Sequence[str]) -> str:
    if len(names) < 2:
        return "".join(names)
    return ", ".join(names[:-1]) + " or " + names[-1]
