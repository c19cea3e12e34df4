"""Times the script's callbacks of `fit`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from tfmon.hooks.cause_reports import causes
from tfmon.hooks.epochs import CALLBACK
from tfmon.hooks.inspection import is_of_script, line_of_function
from tfmon.hooks.patches import hooks, unseen
from tfmon.hooks.script_lines import line_that_made
from tfmon.system.lane_clock import lane_clock
from tfmon.trainer.time_parts import account

BATCH_METHODS = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")


class TimedMethod:
    """Replaces a method of a callback object while `fit` runs."""

    def __init__(self, callback: Any, name: str, method: Callable[..., Any], call: Any) -> None:
        self._callback, self._name, self._timed_method, self._call = callback, name, method, call
        self._line = (line_of_function(method) if is_of_script(method) else "") or line_that_made(callback)
        self._before = vars(callback).get(name)
        setattr(callback, name, self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_timed_method"], name)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._callback, self._name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self._timed_method, memo)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method."""
        call = self._call
        timed, interrupted = not call.in_callback and call.lane.measures_this_thread, ""
        with hooks:
            call.in_callback |= timed
            if timed and self._name not in BATCH_METHODS:
                interrupted = call.lane.meter.passes(f"callback {type(self._callback).__name__}")
        began_ns = lane_clock.now_ns()
        try:
            return self._timed_method(*args, **kwargs)
        except BaseException as error:
            unseen(error)
            raise
        finally:
            took_ns = lane_clock.now_ns() - began_ns
            with hooks:
                if timed:
                    call.in_callback = False
                    self._report(took_ns, interrupted)

    def _report(self, took_ns: int, interrupted: str) -> None:
        kind, line = type(self._callback).__name__, self._line or self._call.line
        if self._name not in BATCH_METHODS:
            self._call.lane.meter.passes(interrupted)
            causes.saw(CALLBACK, line, subject=kind, cost_ns=took_ns)
            return
        account.batch_callback(kind, line, took_ns)
        seen = causes.saw("batch_callback", line, subject=f"{kind}.{self._name}", cost_ns=took_ns)
        seen.what = f"{seen.cost_ns / 1e6 / seen.count:.1f} ms each"

    def restore(self) -> None:
        """Put the original method back."""
        if vars(self._callback).get(self._name) is not self:
            return
        if self._before is None:
            delattr(self._callback, self._name)
        else:
            setattr(self._callback, self._name, self._before)


def timed_methods(keras: Any, callback: Any, call: Any) -> Iterator[TimedMethod]:
    """Replace the methods of a callback."""
    names = ["on_epoch_end", *(BATCH_METHODS if sees_batches(callback) else ())]
    for name in names if hasattr(callback, "__dict__") else ():
        method, base = getattr(callback, name, None), getattr(keras.callbacks.Callback, name, None)
        if (
            callable(method)
            and getattr(method, "__func__", method) is not base
            and not isinstance(method, TimedMethod)
        ):
            yield TimedMethod(callback, name, method, call)


def sees_batches(callback: Any) -> bool:
    """Return whether a callback works in each batch."""
    methods = (getattr(callback, name, None) for name in BATCH_METHODS)
    of_script = any(is_of_script(method) for method in methods if method)
    return of_script or any(getattr(callback, name, "epoch") != "epoch" for name in ("save_freq", "update_freq"))
