"""Hooks on a library's methods that can fail without the script noticing, and leave no frame in a traceback.

A hook calls the original outside of its own guarded parts (`Hooks.around`). What the script's call raises passes
through `unseen`, which removes tfmon's frames from the traceback. All else of tfmon in a thread of the script
stands in `with hooks:` or is wrapped by `hooks.guard`: an error in it is counted, and the script goes on. After
`MOST_FAILURES` of them the originals are restored.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Collection, Generator
from typing import Any

VARIABLE = "TFMON_HOOKS"
"""Environment variable: `off` watches nothing, and leaves `tfmon.report` only."""
MOST_FAILURES = 3
FILES: set[str] = {__file__}
"""Files of hooks, whose frames no error message shows."""
_OWN = __name__.partition(".")[0] + "."
NO_SCOPE = contextlib.nullcontext()
Watching = Generator[contextlib.AbstractContextManager[Any] | None, Any, None]
"""What a hook does around a call of the script."""


def wanted() -> bool:
    """Return whether hooks may be installed in this process."""
    return os.environ.get(VARIABLE, "").strip().lower() not in ("off", "0", "no", "false")


def unseen(error: BaseException) -> None:
    """Remove tfmon's frames from the top of an error's traceback; call it before a bare `raise`: it adds none."""
    trace = error.__traceback__
    while trace is not None and str(trace.tb_frame.f_globals.get("__name__", "")).startswith(_OWN):
        trace = trace.tb_next
    error.__traceback__ = trace


def from_signal(error: BaseException) -> bool:
    """Return whether a signal handler of the script raised an error while code of tfmon was running.

    Such a handler is called with the frame that it interrupted, so one of its variables is the frame before it.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        interrupted, trace = trace.tb_frame, trace.tb_next
        if any(value is interrupted for value in trace.tb_frame.f_locals.values()):
            return True
    return False


@functools.cache
def _filter() -> type:
    from tensorflow.python.util import tf_stack

    # TensorFlow's types are not known here.
    class Filter(tf_stack.StackTraceFilter):  # type: ignore[misc]
        def get_filtered_filenames(self) -> frozenset[str]:
            return frozenset({*self.parent.get_filtered_filenames(), *FILES})

    return Filter


def hidden() -> contextlib.AbstractContextManager[Any]:
    """Return a scope in which operations of a graph are stored without the frames of `FILES` in their stacks."""
    scope: contextlib.AbstractContextManager[Any] = _filter()() if "tensorflow" in sys.modules else NO_SCOPE
    return scope


class Hooks:
    """The methods that were replaced, and the guard of tfmon's code in the script, as a context. Thread: any."""

    def __init__(self) -> None:
        """Replace nothing yet."""
        self.failures = 0
        self.off = False
        """True once the originals are restored: a hook that another library has wrapped does nothing then."""
        self.failed: Callable[[str], None] = lambda reason: None
        """Is called with the reason when the originals were restored."""
        self.reset: Callable[[], None] = lambda: None
        """Is called after each failure, and forgets what was half done."""
        self.undo: list[Callable[[], object]] = []
        """Undo what was changed besides methods."""
        self._replaced: list[tuple[type, str, Any, Any]] = []

    def begin(self) -> None:
        """Replace methods again, after the originals were restored."""
        self.failures, self.off = 0, False

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:  # noqa: ANN401
        """Replace a method that `owner` itself defines by `make(original)`; do nothing if it defines none."""
        own = owner.__dict__.get(name)
        if not callable(own) or any(owner is one and name == its for one, its, _, _ in self._replaced):
            return
        hook = functools.wraps(own)(make(own))
        setattr(owner, name, hook)
        self._replaced.append((owner, name, own, hook))

    def around(self, watch: Callable[..., Watching | None]) -> Callable[[Any], Any]:
        """Return a maker of hooks: each calls its method in the middle of a generator.

        Args:
            watch: Is called with the arguments of the script's call. The generator that it returns yields a scope
                for the call, or None, and gets the result; it is closed if the call raises an error.
        """

        def make(own: Any) -> Any:  # noqa: ANN401
            def hook(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
                watching = scope = None
                try:
                    try:
                        watching = watch(*args, **kwargs)
                        scope = None if watching is None else next(watching, None)
                    except Exception as error:
                        if not self.__exit__(None, error, None):
                            raise
                    if scope is None:
                        result = own(*args, **kwargs)
                    else:
                        with scope:
                            result = own(*args, **kwargs)
                    if watching is not None:
                        with self, contextlib.suppress(StopIteration):
                            watching.send(result)
                    return result
                except BaseException as error:
                    if watching is not None:
                        with self:
                            watching.close()
                    unseen(error)
                    raise

            return hook

        return make

    def __enter__(self) -> None:
        """Begin code of tfmon in a thread of the script."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        """Count an error, unless it is the script's own."""
        if not isinstance(error, Exception) or from_signal(error):
            return False
        self.failure(error)
        return True

    def guard(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that fails without the script noticing, and then returns None."""

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            with self:
                return function(*args, **kwargs)

        return guarded

    def failure(self, error: Exception) -> None:
        """Count an error of a hook, and restore the originals after too many."""
        self.failures += 1
        try:
            self.reset()
            if self.failures >= MOST_FAILURES and not self.off:
                self.restore()
                self.failed(f"{type(error).__name__}: {error}")
        except Exception:  # noqa: BLE001 - the script must go on, whatever is wrong with this
            self.off = True

    def switch(self, names: Collection[str], *, on: bool) -> None:
        """Put the hooks on methods of these names in place, or the originals until the next switch."""
        for owner, name, own, hook in self._replaced:
            if name in names and owner.__dict__.get(name) is (own if on else hook):
                setattr(owner, name, hook if on else own)

    def restore(self) -> None:
        """Put the originals back."""
        self.off = True
        replaced, undo = self._replaced, self.undo
        # A hook that another library has wrapped stays, and does nothing until the next `begin`.
        self._replaced, self.undo = [one for one in replaced if one[0].__dict__.get(one[1]) is not one[3]], []
        for owner, name, own, hook in replaced:
            if owner.__dict__.get(name) is hook:
                setattr(owner, name, own)
        for each in reversed(undo):
            each()


hooks = Hooks()
"""Those of this process."""
