"""Reports the steps of your own training loop to tfmon. Without tfmon it does nothing.

Call `step` at the end of each step. The loss may be a tensor; it is read a few times a second only:

    from tfmon import report

    for x, y in dataset:
        loss = train_step(x, y)
        report.step(examples=len(x), loss=loss)

To measure the wait for input separately, iterate over `input(dataset)`, or mark the wait:

    for x, y in report.input(dataset):
        with report.step(examples=len(x)) as step:
            step.loss = train_step(x, y)

    with report.input():
        x, y = next(batches)

A value that a key press may change while the script trains:

    batch_size = report.knob("batch_size", 32, choices=(16, 32, 64, 128))

It works with TensorFlow, PyTorch, JAX and others, and needs the standard library only.

Thread: the first thread that calls `step` is measured; calls from others are ignored.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

if TYPE_CHECKING:
    from tfmon.hooks.patches import Hooks
    from tfmon.hooks.script_lane import Lane

__all__ = ["input", "knob", "step"]

Batches = TypeVar("Batches", bound=Iterable[Any])
Value = TypeVar("Value", int, float, str, bool)
_first: Step | None = None
_last: Step | None = None
_input_ns = 0
_reported_unknown = False


class Step:
    """One training step: the time in its `with` block. Without a `with`, it ended when `step` was called."""

    __slots__ = ("_began_ns", "_call_ns", "_lane", "entered", "examples", "loss")

    def __init__(self, examples: int, loss: object, lane: Lane | None = None) -> None:
        self.examples = examples
        self.loss: object = loss
        self.entered = False
        self._lane = lane
        self._began_ns = self._call_ns = 0

    def __enter__(self) -> Step:
        """Begin the step when this lane may train."""
        global _input_ns  # noqa: PLW0603 - state of the process
        if self._lane is not None:
            self.entered = True
            with _guard():
                if self._lane.begin_step():  # a wait before the pause does not count
                    _input_ns = 0
            self._began_ns = _now_ns()
        return self

    def __exit__(self, *failed: object) -> None:
        if self._lane is not None:
            self._call_ns = _now_ns() - self._began_ns
            with _guard():
                _end(self._lane, self, self._call_ns)


class _Input:
    """A wait for a batch."""

    __slots__ = ("_began_ns",)

    def __enter__(self) -> None:
        self._began_ns = _now_ns()

    def __exit__(self, *failed: object) -> None:
        global _input_ns  # noqa: PLW0603 - state of the process
        _input_ns += _now_ns() - self._began_ns


class _Timed:
    """A proxy of batches that times the iteration."""

    __slots__ = ("_tfmon_batches",)

    def __init__(self, batches: Any) -> None:
        object.__setattr__(self, "_tfmon_batches", batches)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(object.__getattribute__(self, "_tfmon_batches"))

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_tfmon_batches"), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._tfmon_batches, name, value)

    def __iter__(self) -> Iterator[Any]:
        with _Input():
            iterator = iter(self._tfmon_batches)
        return cast("Iterator[Any]", self if iterator is self._tfmon_batches else _timed(iterator))

    def __len__(self) -> int:
        return len(self._tfmon_batches)

    def __bool__(self) -> bool:
        return bool(self._tfmon_batches)

    def __getitem__(self, key: Any) -> Any:
        return self._tfmon_batches[key]


class _TimedIterator(_Timed):
    """A proxy of an iterator."""

    __slots__ = ()

    def __next__(self) -> Any:
        with _Input():
            return next(self._tfmon_batches)


def _timed(batches: Any) -> _Timed:
    return (_TimedIterator if hasattr(batches, "__next__") else _Timed)(batches)


def step(examples: int = 0, loss: object = None) -> Step:
    """Report a training step: call it after the step, or put the step into a `with` block.

    Args:
        examples: number of examples in the step. If it is 0, unknown, the lane has steps/s but no examples/s.
        loss: a number or a tensor, or None. A tensor is kept until the next step, and read a few times a second.

    Returns: the step; inside of a `with`, its `examples` and `loss` can be set.
    """
    if not _in_a_lane():
        return Step(_checked(examples), loss)
    with _guard():
        return _lane_step(examples, loss)
    return Step(examples, loss)


@overload
def input() -> AbstractContextManager[None]: ...
@overload
def input(batches: Batches) -> Batches: ...
def input(batches: Batches | None = None) -> AbstractContextManager[None] | Batches:
    """Measure the wait for batches: with a `with` block around one wait, or by iterating over `batches`.

    Args:
        batches: any iterable of batches, or an iterator.

    Returns: a context for one wait, or what behaves as `batches` does: it can be iterated over again if they can.
    """
    if not _in_a_lane():
        return nullcontext() if batches is None else batches
    return _Input() if batches is None else cast("Batches", _timed(batches))


def knob(
    name: str,
    value: Value,
    choices: tuple[Value, ...] = (),
    low: float | None = None,
    high: float | None = None,
    help: str = "",
) -> Value:
    """Return the value in effect of a knob of this script; call it each time the value is needed.

    The value starts at `value`, or at what `--lane cpu,NAME=VALUE` says, and changes when the user sets the knob.

    Args:
        name: name of the knob.
        value: the default; its type is the knob's type.
        choices: the possible values; `value` is always one of them.
        low: smallest number. Without `low` and `high` it is 0, or 1 for a positive int.
        high: largest number. None for no limit.
        help: one line about the knob, for the user.
    """
    if not _in_a_lane():
        return value
    with _guard():
        return _lane_knob(name, value, choices, low, high, help)
    return value


def _now_ns() -> int:
    from tfmon.system.lane_clock import lane_clock

    return lane_clock.now_ns()


def _in_a_lane() -> bool:
    return "TFMON_PIPES" in os.environ


def _checked(examples: Any) -> int:
    try:
        count = operator.index(examples)
    except TypeError:
        count = -1
    if count < 0:
        raise ValueError(f"report.step: examples={examples!r}; expected a whole number from 0, such as len(x)")
    return count


def _guard() -> Hooks:
    from tfmon.hooks.patches import hooks

    return hooks


def _lane_step(examples: int, loss: object) -> Step:
    global _first, _last  # noqa: PLW0603 - state of the process
    from tfmon.hooks import install
    from tfmon.hooks.script_process import process

    if not process.steps.off:
        install.stop_watching()
    lane = process.join()
    if lane is None or not lane.claims_thread():
        return Step(examples, loss)
    # A `with` may follow, so assume the usage of the previous call.
    before, _last = _last, Step(_known(lane, examples), loss, lane)
    if before is None or before._lane is not lane:
        _first = _last
        lane.leaving = _guard().guard(_count_first)
        lane.begin_step()
    elif not before.entered:
        _count_first()
        _end(lane, _last, None)
        lane.begin_step()
    return _last


def _count_first() -> None:
    """Count the first step, whose duration is unknown."""
    global _first
    first, _first = _first, None
    if first is not None and first._lane is not None and not first.entered:
        first._lane.meter.count_untimed(first.examples, _loss_of(first))


def _loss_of(step: Step) -> object:
    detach = getattr(step.loss, "detach", None)
    return step.loss if detach is None else detach()


def _known(lane: Lane, examples: Any) -> int:
    global _reported_unknown  # noqa: PLW0603 - state of the process
    try:
        return _checked(examples)
    except ValueError as error:
        if not _reported_unknown:
            lane.cannot_know("examples", str(error))
        _reported_unknown = True
        return 0


def _end(lane: Lane, ended: Step, call_ns: int | None) -> None:
    global _input_ns
    waited_ns, _input_ns = _input_ns, 0
    examples, loss = _known(lane, ended.examples), _loss_of(ended)
    lane.meter.end_step(examples=examples, loss=loss, input_ns=waited_ns, call_ns=call_ns)


def _lane_knob(
    name: str, value: Value, choices: tuple[Value, ...], low: float | None, high: float | None, help: str
) -> Value:
    from tfmon.hooks.script_process import process
    from tfmon.model.knobs import Knob

    lane = process.join()
    if lane is None or not lane.measures_this_thread:
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
    help_text = help or "A knob of this script."
    offered = Knob(name, default=value, help=help_text, kind="live", choices=allowed, low=low, high=high)
    return cast("Value", lane.offer(offered, lambda _value: None))
