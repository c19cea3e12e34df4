"""Hooks that fail without effect on the script and leave no frame in a traceback.

A hook calls the original outside of its guarded parts. Errors of the script pass through `unseen`. All other code
of tfmon in a script's thread must be in `with hooks:` or `hooks.guard`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

VARIABLE = "TFMON_HOOKS"
"""If `off`, only `tfmon.report` works."""
MOST_FAILURES = 3
FILES = frozenset(map(str, Path(__file__).parent.glob("*.py")))
"""Files whose frames TensorFlow hides in error messages."""
_OWN = __name__.partition(".")[0] + "."
NO_SCOPE = contextlib.nullcontext()
Around = Generator[contextlib.AbstractContextManager[Any] | None, Any, None]


def wanted() -> bool:
    """Return whether hooks may be installed."""
    return os.environ.get(VARIABLE, "").strip().lower() not in ("off", "0", "no", "false")


def unseen(error: BaseException) -> None:
    """Remove tfmon's frames from a traceback. Then use a bare `raise`, which adds none."""
    trace = error.__traceback__
    while trace is not None and str(trace.tb_frame.f_globals.get("__name__", "")).startswith(_OWN):
        trace = trace.tb_next
    error.__traceback__ = trace


def _from_signal(error: BaseException) -> bool:
    """Return whether a signal handler of the script raised the error in tfmon's code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        interrupted, trace = trace.tb_frame, trace.tb_next
        if any(value is interrupted for value in trace.tb_frame.f_locals.values()):
            return True
    return False


@functools.cache
def _filter() -> type:
    from tensorflow.python.util import tf_stack

    class Filter(tf_stack.StackTraceFilter):  # type: ignore[misc]
        def get_filtered_filenames(self) -> frozenset[str]:
            return frozenset({*self.parent.get_filtered_filenames(), *FILES})

    return Filter


def hidden() -> contextlib.AbstractContextManager[Any]:
    """Return a scope that hides the frames of `FILES` in operations."""
    scope: contextlib.AbstractContextManager[Any] = _filter()() if "tensorflow" in sys.modules else NO_SCOPE
    return scope


class Hooks:
    """The replaced methods, and the guard of tfmon's code. Thread: any."""

    def __init__(self) -> None:
        self.failures = 0
        self.off = False
        """Whether hooks do nothing, even if another library has wrapped them."""
        self.failed: Callable[[str], None] = lambda reason: None
        self.reset: Callable[[str], None] = lambda reason: None
        """Discards partial state after each failure, and reports the failure."""
        self.undo: list[Callable[[], object]] = []
        self._replaced: list[tuple[type, str, Any, Any, str]] = []

    def begin(self) -> None:
        """Replace methods again after a restore."""
        self.failures, self.off = 0, False

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace a method that `owner` itself defines by `make(original)`, once for each module."""
        original, module = owner.__dict__.get(name), getattr(make, "body", make).__module__
        known = (
            owner is patched and name == replaced_name and module == replacing_module
            for patched, replaced_name, _, _, replacing_module in self._replaced
        )
        if not callable(original) or any(known):
            return
        hook = functools.wraps(original)(make(original))
        setattr(owner, name, hook)
        self._replaced.append((owner, name, original, hook, module))

    def around(self, body: Callable[..., Around | None]) -> Callable[[Any], Any]:
        """Return a function that makes a hook of a method.

        The generator of `body` surrounds each call: it yields a scope or None, and receives the result. An error
        closes the generator.
        """

        def make(original: Any) -> Any:
            def hook(*args: Any, **kwargs: Any) -> Any:
                part = scope = None
                try:
                    try:
                        part = body(*args, **kwargs)
                        scope = None if part is None else next(part, None)
                    except Exception as error:
                        if not self.handles(error):
                            raise
                    if scope is None:
                        result = original(*args, **kwargs)
                    else:
                        with scope:
                            result = original(*args, **kwargs)
                    if part is not None:
                        try:
                            part.send(result)
                        except StopIteration:
                            pass
                        except Exception as error:
                            if not self.handles(error):
                                raise
                    return result
                except BaseException as error:
                    if part is not None:
                        with self:
                            part.close()
                    unseen(error)
                    raise

            return hook

        make.body = body  # type: ignore[attr-defined]
        return make

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        return isinstance(error, Exception) and self.handles(error)

    def handles(self, error: Exception) -> bool:
        """Count an error of tfmon. Return False for an error of the script's signal handler, to raise again.

        `except` with this method costs less than `with hooks`, where each step passes.
        """
        if _from_signal(error):
            return False
        self.failure(error)
        return True

    def guard(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, guarded: it returns None after an error."""

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return guarded

    def failure(self, error: Exception) -> None:
        """Count an error, and remove all hooks after `MOST_FAILURES`."""
        self.failures += 1
        reason = f"{type(error).__name__}: {error}{_place_of(error)}"
        try:
            self.reset(reason)
            if self.failures >= MOST_FAILURES and not self.off:
                self.restore()
                self.failed(reason)
        except Exception:  # noqa: BLE001 - the script must go on, whatever is wrong with this
            self.off = True

    def restore(self) -> None:
        """Put the original methods back."""
        self.off = True
        replaced, undo = self._replaced, self.undo
        self._replaced, self.undo = [], []
        for owner, name, original, hook, module in reversed(replaced):
            if owner.__dict__.get(name) is hook:
                setattr(owner, name, original)
            else:
                self._replaced.insert(0, (owner, name, original, hook, module))
        for each in reversed(undo):
            each()


def _place_of(error: BaseException) -> str:
    place, trace = "", error.__traceback__
    while trace is not None:
        module = trace.tb_frame.f_globals.get("__name__", "")
        if module.startswith(_OWN):
            place = f", {module} line {trace.tb_lineno}"
        trace = trace.tb_next
    return place


hooks = Hooks()
