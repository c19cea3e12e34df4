"""Reads optimizers' counts and learning rates."""

from __future__ import annotations

import json
import os
import sys
import weakref
from collections.abc import Callable, Iterable
from operator import sub
from typing import Any, Protocol

from tfmon.hooks.inspection import logs_operations
from tfmon.model.knobs import Knob, KnobError, KnobValue
from tfmon.system.lane_pipes import SETTINGS

LEARNING_RATE = "learning_rate"
SEVERAL = "the script trains with several optimizers, so a learning rate would apply to one of them"


class Updater:
    """The optimizers of a function, or an update by hand."""

    def __init__(self, optimizers: Iterable[Any], name: str) -> None:
        self.name = name
        optimizers = list(optimizers)
        self.by_hand = not optimizers
        self.varies = any(hasattr(optimizer, "inner_optimizer") for optimizer in optimizers)
        """Whether a call may make no or several updates."""
        self._counters = [counter for counter in map(_counter_of, optimizers) if counter is not None]
        self.every = max((every for _, every in self._counters), default=1)
        """Calls per update, if gradients are accumulated."""
        self.rebase()

    def rebase(self) -> None:
        """Compare with the optimizers' present counts."""
        self.made = 0
        self._base = self._read()

    def _read(self) -> list[int]:
        now = [] if logs_operations() else [read() for read, _ in self._counters]
        return [counter for counter in now if counter is not None]

    @property
    def counted(self) -> int | None:
        """Fewest counted calls of an optimizer since `rebase`, if known."""
        now = self._read()
        return min(map(sub, now, self._base)) if now and len(now) == len(self._base) else None

    def made_more(self, calls: int) -> int:
        """Record calls, and return the completed updates."""
        first = (self._base[0] if self._base else 0) + self.made
        self.made += calls
        return (first + calls) // self.every - first // self.every

    def missed(self) -> int:
        """Return how many updates the optimizers counted that tfmon did not see.

        A lower count is ignored if each call updates once, because the script has reset the counter.
        """
        counted = self.counted
        if counted is None or counted == self.made:
            return 0
        missed, self.made = counted - self.made, counted
        return missed if missed > 0 or self.varies or self.every > 1 else 0

    def differs(self, more: int) -> str:
        """Explain that optimizers counted `more` updates than tfmon saw."""
        counted = f"{abs(more)} {'more' if more > 0 else 'fewer'} update{'s' if abs(more) > 1 else ''}"
        why = "not each call updates once" if self.varies else "it was applied unseen, or its counter was set"
        return (
            f"{self.name} has counted {counted} than calls were seen: {why}. "
            "Tell tfmon what a step is: report.step"
        )


def counting(optimizer: Any) -> tuple[int, Any]:
    """Return the calls per update, and the counter."""
    inner = getattr(optimizer, "inner_optimizer", None) or optimizer
    every = int(getattr(inner, "gradient_accumulation_steps", None) or 1)
    return every, inner._iterations if every > 1 else getattr(inner, "iterations", None)


def _counter_of(optimizer: Any) -> tuple[Callable[[], int | None], int] | None:
    every, counter = counting(optimizer)
    if not hasattr(counter, "numpy"):
        return None
    inner = getattr(counter, "_value", None)
    variable: Any = inner if hasattr(inner, "assign_sub") else counter
    kept = weakref.ref(variable)
    plain = type(variable).__name__ == "ResourceVariable"
    if plain:  # reading by handle keeps no optimizer alive
        from tensorflow.python.ops.gen_resource_variable_ops import read_variable_op

        handle, kind = variable.handle, variable.dtype
        return lambda: int(read_variable_op(handle, kind).numpy()), every

    def read() -> int | None:
        counter = kept()
        return None if counter is None else int(counter.numpy())

    return read, every


class Offers(Protocol):
    """A lane that takes knobs."""

    def offer(self, knob: Knob, apply: Callable[[Any], object]) -> KnobValue:
        """Offer a knob and return its value."""
        ...

    def fail(self, kind: str, message: str) -> None:
        """End the lane."""
        ...


def _rate_of(optimizer: Any) -> float | None:
    inner = getattr(optimizer, "inner_optimizer", None) or optimizer
    held = getattr(inner, "_learning_rate", None)
    if held is None:
        held = getattr(inner, "_hyper", {}).get(LEARNING_RATE)
    try:
        if callable(held) and not hasattr(held, "assign"):
            return None
        rate = inner.learning_rate
        if not isinstance(rate, float):
            rate = rate.numpy() if hasattr(rate, "numpy") else sys.modules["keras"].ops.convert_to_numpy(rate)
        # Seven digits restore the rate from 32 bits.
        return float(f"{float(rate):.7g}")
    except (TypeError, ValueError, AttributeError, KeyError, NotImplementedError):
        return None


def _set_rate(optimizer: Any, value: float) -> None:
    inner = getattr(optimizer, "inner_optimizer", None) or optimizer
    try:
        inner.learning_rate = value
    except (TypeError, AttributeError, ValueError) as error:
        raise KnobError(f"learning_rate: {error}") from error


def offer_rate(lane: Offers, optimizer: Any, check: Callable[[], None] = lambda: None) -> None:
    """Offer the learning rate if it can be set. `check` raises KnobError to refuse."""
    rate = None if logs_operations() else _rate_of(optimizer)
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
            raise KnobError("the script no longer trains with this optimizer")
        _set_rate(optimizer, value)

    lane.offer(knob, apply)


class LoopOptimizers:
    """A loop's optimizers. Thread: the training thread."""

    def __init__(self) -> None:
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self.count = 0
        self._requested = json.loads(os.environ.get(SETTINGS, "{}")).get(LEARNING_RATE)

    def saw(self, optimizer: Any) -> None:
        """Record an optimizer before its update."""
        if optimizer is None or optimizer in self._seen:
            return
        self._seen.add(optimizer)
        self.count += 1
        if isinstance(self._requested, int | float):
            import tensorflow as tf

            with tf.init_scope():
                if _rate_of(optimizer) is not None:
                    _set_rate(optimizer, float(self._requested))

    def offer(self, lane: Offers) -> None:
        """Offer the learning rate of a single optimizer."""
        if self.count == 1:
            for optimizer in self._seen:
                offer_rate(lane, optimizer, self._check)
        elif self.count and self._requested is not None:
            lane.fail("scenario", f"learning_rate was requested, and {SEVERAL}")

    def _check(self) -> None:
        if self.count > 1:
            raise KnobError(SEVERAL)
