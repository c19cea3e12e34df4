"""The knobs that a script offers, including the learning rate of its optimizer."""

from __future__ import annotations

import json
import os
import sys
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tfmon.model.knobs import PYTHON, Knob, KnobError, KnobValue, find, show
from tfmon.model.lane_pipes import SETTINGS
from tfmon.script.looking import logs_operations

LEARNING_RATE = "learning_rate"
SEVERAL = "the script trains with several optimizers, so a learning rate would be that of one of them"


class Offers(Protocol):
    """A lane that takes knobs."""

    def offer(self, knob: Knob, apply: Callable[[Any], object]) -> KnobValue: ...  # noqa: D102
    def fail(self, kind: str, message: str) -> None: ...  # noqa: D102


class OfferedKnobs:
    """The knobs that a script offers, with their current values. Thread: the one that trains."""

    def __init__(self) -> None:
        self.settings: dict[str, KnobValue] = {}
        self._requested: dict[str, KnobValue] = json.loads(os.environ.get(SETTINGS, "{}"))
        self._offered: dict[str, tuple[Knob, Callable[[Any], object]]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._offered

    @property
    def not_offered(self) -> str:
        """Name of a knob that the command line sets and the script does not offer. Empty if there is none."""
        return next((name for name in self._requested if name not in (*self._offered, PYTHON)), "")

    def requested(self, knob: Knob) -> KnobValue | None:
        """Return a knob's value on the command line, or None. Raises KnobError for an impossible value."""
        requested = self._requested.get(knob.name)
        if requested is None:
            return None
        return knob.parse(str(requested)) if isinstance(requested, str) else knob.check(requested)

    def offer(self, knob: Knob, apply: Callable[[Any], object]) -> KnobValue:
        """Add a knob, and return its current, command-line or default value.

        The training thread calls `apply` with each new value between two steps. `apply` refuses with KnobError.

        Raises: KnobError for an impossible value of the command line.
        """
        known = knob.name in self._offered
        self._offered[knob.name] = knob, apply
        if known:
            return self.settings[knob.name]
        self.settings[knob.name] = value = knob.default
        requested = self.requested(knob)
        if requested is not None:
            value = requested
            if apply(value):
                raise KnobError(f"{knob.name}={show(value)} is not possible from the script's first epoch on")
            self.settings[knob.name] = value
        return value

    def made_of_defaults(self, values: Mapping[str, KnobValue]) -> None:
        """Display values that a library chose beside the knobs. They cannot be changed."""
        self.settings.update({name: value for name, value in values.items() if name not in self._offered})

    def set(self, name: str, value: KnobValue) -> bool:
        """Change a value, and return whether it takes effect later. Raises KnobError if impossible."""
        value = find([knob for knob, _ in self._offered.values()], name).check(value)
        later = bool(self._offered[name][1](value))
        if not later:
            self.settings[name] = value
        return later


def rate_of(optimizer: Any) -> float | None:  # noqa: ANN401
    """Return an optimizer's learning rate. None if it cannot be set, as with a schedule."""
    inner = getattr(optimizer, "inner_optimizer", None) or optimizer
    held = getattr(inner, "_learning_rate", None)
    if held is None:
        held = getattr(inner, "_hyper", {}).get(LEARNING_RATE)
    try:
        if callable(held) and not hasattr(held, "assign"):
            return None  # a schedule
        rate = inner.learning_rate
        if not isinstance(rate, float):
            rate = rate.numpy() if hasattr(rate, "numpy") else sys.modules["keras"].ops.convert_to_numpy(rate)
        # Keras keeps it in 32 bits; seven digits give back what was written in the script.
        return float(f"{float(rate):.7g}")
    except (TypeError, ValueError, AttributeError, KeyError, NotImplementedError):
        return None


def set_rate(optimizer: Any, value: float) -> None:  # noqa: ANN401
    """Set an optimizer's learning rate. Raises KnobError if it cannot be set."""
    inner = getattr(optimizer, "inner_optimizer", None) or optimizer
    try:
        inner.learning_rate = value
    except (TypeError, AttributeError, ValueError) as error:
        raise KnobError(f"learning_rate: {error}") from error


def offer_rate(lane: Offers, optimizer: Any, check: Callable[[], None] = lambda: None) -> None:  # noqa: ANN401
    """Offer an optimizer's learning rate if it can be set. `check` refuses with KnobError."""
    rate = None if logs_operations() else rate_of(optimizer)
    if rate is None:
        return
    knob = Knob(
        LEARNING_RATE, default=rate, help="The optimizer's learning rate, until the script sets it.", kind="live",
        low=0.0,
    )  # fmt: skip

    kept = weakref.ref(optimizer)

    def apply(value: float) -> None:
        check()
        optimizer = kept()
        if optimizer is None:
            raise KnobError("the script trains with this optimizer no more")
        set_rate(optimizer, value)

    lane.offer(knob, apply)


class LoopOptimizers:
    """The optimizers of a loop. A single one offers its learning rate. Thread: the one that trains."""

    def __init__(self) -> None:
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self.count = 0
        self._requested = json.loads(os.environ.get(SETTINGS, "{}")).get(LEARNING_RATE)

    def saw(self, optimizer: Any) -> None:  # noqa: ANN401
        """Record an optimizer before its update or trace."""
        if optimizer is None or optimizer in self._seen:
            return
        self._seen.add(optimizer)
        self.count += 1
        if isinstance(self._requested, int | float):
            import tensorflow as tf

            with tf.init_scope():  # it may be seen while a function is traced
                if rate_of(optimizer) is not None:
                    set_rate(optimizer, float(self._requested))

    def offer(self, lane: Offers) -> None:
        """Offer the knob after the first steps have shown all optimizers."""
        if self.count == 1:
            for optimizer in self._seen:
                offer_rate(lane, optimizer, self._check)
        elif self.count and self._requested is not None:
            lane.fail("scenario", f"learning_rate was requested, and {SEVERAL}")

    def _check(self) -> None:
        if self.count > 1:
            raise KnobError(SEVERAL)
