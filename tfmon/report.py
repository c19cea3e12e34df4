"""Tells tfmon of a training loop of your own. Without tfmon it does nothing.

At the end of each step say how many examples it had; the loss may be a tensor, and is read a few times a second
only:

    from tfmon import report

    for x, y in dataset:
        loss = train_step(x, y)
        report.step(examples=len(x), loss=loss)

To tell the wait for input from the step, let tfmon take the batches, or mark the wait yourself:

    for x, y in report.input(dataset):
        with report.step(examples=len(x)) as step:
            step.loss = train_step(x, y)

    with report.input():
        x, y = next(batches)

A value that a key may change while the script trains:

    batch_size = report.knob("batch_size", 32, choices=(16, 32, 64, 128))

It works for whatever trains: TensorFlow, PyTorch, JAX. Only the standard library is needed.

Thread: the thread that calls `step` first is the one that is measured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

if TYPE_CHECKING:
    from tfmon.script.lane import Lane

__all__ = ["input", "knob", "step"]

Item = TypeVar("Item")
Value = TypeVar("Value", int, float, str, bool)
_in_a_lane = "TFMON_LANE" in os.environ
_last: Step | None = None
_input_ns = 0


class Step:
    """One step. In a `with` it lasts as long as that; without, it has ended when it is made."""

    __slots__ = ("_began_ns", "_call_ns", "_lane", "entered", "examples", "loss")

    def __init__(self, examples: int, loss: object, lane: Lane | None = None) -> None:
        self.examples = examples
        """How many examples it trains."""
        self.loss: object = loss
        """A number, or a tensor of one or more; None for a step that has none."""
        self.entered = False
        self._lane = lane
        self._began_ns = self._call_ns = 0

    def __enter__(self) -> Step:
        """Begin it."""
        if self._lane is not None:
            self.entered = True
            if self._lane.begin_step():
                _forget_input()
            self._began_ns = time.monotonic_ns()
        return self

    def __exit__(self, *failed: object) -> None:
        """End it."""
        if self._lane is not None:
            self._call_ns = time.monotonic_ns() - self._began_ns
            _end(self._lane, self, self._call_ns)


class _Input:
    """The wait for a batch."""

    __slots__ = ("_began_ns",)

    def __enter__(self) -> None:
        self._began_ns = time.monotonic_ns()

    def __exit__(self, *failed: object) -> None:
        global _input_ns
        _input_ns += time.monotonic_ns() - self._began_ns


class _Nothing:
    """Stands for a wait that nobody measures."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *failed: object) -> None:
        pass


_NOTHING = _Nothing()


def step(examples: int = 0, loss: object = None) -> Step:
    """Tell that a step has ended; or with `with`, where it begins and ends.

    `examples` is how many it trained: without them steps are counted, and no examples/s. A loss that is a
    tensor is kept until the next step, and read when a window of 0.2 s ends.
    """
    if not _in_a_lane:
        return Step(examples, loss)
    return _watched_step(examples, loss)


@overload
def input() -> _Input | _Nothing: ...
@overload
def input(batches: Iterable[Item]) -> Iterable[Item]: ...
def input(batches: Iterable[Item] | None = None) -> _Input | _Nothing | Iterable[Item]:
    """Mark the wait for the next batch in a `with`; or, given the batches, take them and measure each wait."""
    if not _in_a_lane:
        return _NOTHING if batches is None else batches
    return _Input() if batches is None else _timed(batches)


def knob(
    name: str,
    value: Value,
    choices: tuple[Value, ...] = (),
    low: float | None = None,
    high: float | None = None,
    help: str = "",
) -> Value:
    """Return the value in force of a knob of this script: `value` at first, then what the user asked for.

    Call it each time you need the value. It is one of `choices`, or a number from `low` to `high`; with neither, a
    bool is on or off, and a number is one from 0, a whole one from 1. On the command line: `--lane
    cpu,NAME=VALUE`.
    """
    if not _in_a_lane:
        return value
    return _watched_knob(name, value, choices, low, high, help)


def _watched_step(examples: int, loss: object) -> Step:
    global _last, _in_a_lane
    from tfmon.script import process as joining

    lane = joining.lane()
    if lane is None:
        _in_a_lane = False  # another process of this script is the lane
        return Step(examples, loss)
    if not lane.mine:
        return Step(examples, loss)
    # Whether a `with` follows cannot be seen from here, but whether one followed the last time.
    before, _last = _last, Step(examples, loss, lane)
    if before is None:
        lane.begin_step()
    elif not before.entered:
        _end(lane, _last, None)
        lane.begin_step()
    return _last


def _forget_input() -> None:
    """Drop the wait before a rest of the lane; the window began after it."""
    global _input_ns
    _input_ns = 0


def _end(lane: Lane, ended: Step, call_ns: int | None) -> None:
    global _input_ns
    detach = getattr(ended.loss, "detach", None)  # PyTorch: the loss alone, without the graph it came from
    loss = ended.loss if detach is None else detach()
    waited_ns, _input_ns = _input_ns, 0
    lane.end_step(examples=ended.examples, loss=loss, input_ns=waited_ns, call_ns=call_ns)


def _timed(batches: Iterable[Item]) -> Iterator[Item]:
    iterator = iter(batches)
    while True:
        try:
            with _Input():
                batch = next(iterator)
        except StopIteration:
            return
        yield batch


def _watched_knob(
    name: str, value: Value, choices: tuple[Value, ...], low: float | None, high: float | None, help: str
) -> Value:
    from tfmon.model.knobs import Knob
    from tfmon.script import process as joining

    lane = joining.lane()
    if lane is None or not lane.mine:
        return value
    if name in lane.knobs:
        return cast("Value", lane.knobs.settings[name])
    allowed: tuple[Any, ...] = choices
    if isinstance(value, str) or choices:
        allowed = choices if value in choices else (*choices, value)
    elif not isinstance(value, bool) and low is None and high is None:
        low = 1 if isinstance(value, int) and value > 0 else 0
    if not isinstance(value, bool | str):
        low = None if low is None else min(low, value)
        high = None if high is None else max(high, value)
    words = help or "A knob of this script."
    offered = Knob(name, default=value, help=words, kind="live", choices=allowed, low=low, high=high)
    return cast("Value", lane.offer(offered, lambda _value: None))
