"""The learning rate of a script's optimizer as a knob: the one that Keras trains with, or that a loop applies."""

from __future__ import annotations

import json
import os
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfmon.model.knobs import Knob, KnobError
from tfmon.model.lane_pipes import SETTINGS
from tfmon.script.looking import logs_operations

if TYPE_CHECKING:
    from tfmon.script.lane import Lane

LEARNING_RATE = "learning_rate"
SEVERAL = "the script trains with several optimizers, so a learning rate would be that of one of them"


def rate_of(optimizer: Any) -> float | None:  # noqa: ANN401
    """Return an optimizer's learning rate; None if it cannot be set, as with a schedule."""
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
    """Set an optimizer's learning rate.

    Raises: KnobError if it cannot be set.
    """
    inner = getattr(optimizer, "inner_optimizer", None) or optimizer
    try:
        inner.learning_rate = value
    except (TypeError, AttributeError, ValueError) as error:
        raise KnobError(f"learning_rate: {error}") from error


def offer_rate(lane: Lane, optimizer: Any, check: Callable[[], None] = lambda: None) -> None:  # noqa: ANN401
    """Offer the learning rate of an optimizer, if it can be set; `check` may refuse a value by a KnobError."""
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
    """The optimizers that a loop applies; with one of them, its learning rate is a knob.

    What the command line sets is in effect from the first update on.

    Thread: the one that trains.
    """

    def __init__(self) -> None:
        """Know none yet."""
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self.count = 0
        """How many it has seen."""
        self._requested = json.loads(os.environ.get(SETTINGS, "{}")).get(LEARNING_RATE)

    def saw(self, optimizer: Any) -> None:  # noqa: ANN401
        """Record an optimizer that is about to make updates, or to be traced."""
        if optimizer is None or optimizer in self._seen:
            return
        self._seen.add(optimizer)
        self.count += 1
        if isinstance(self._requested, int | float):
            import tensorflow as tf

            with tf.init_scope():  # it may be seen while a function is traced
                if rate_of(optimizer) is not None:
                    set_rate(optimizer, float(self._requested))

    def offer(self, lane: Lane) -> None:
        """Offer the knob once the first steps have shown all optimizers."""
        if self.count == 1:
            for optimizer in self._seen:
                offer_rate(lane, optimizer, self._check)
        elif self.count and self._requested is not None:
            lane.fail("scenario", f"learning_rate was requested, and {SEVERAL}")

    def _check(self) -> None:
        if self.count > 1:
            raise KnobError(SEVERAL)
