"""Hooks on a library's methods that can fail without the script noticing, and leave no frame in a traceback.

A hook calls the original outside of its own guarded parts. What the script's call raises passes through
`unseen`, which removes tfmon's frames from the traceback. An error of a hook itself is counted; after
`MOST_FAILURES` of them the originals are restored.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from typing import Any

VARIABLE = "TFMON_HOOKS"
"""Environment variable: `off` watches nothing, and leaves `tfmon.report` only."""
MOST_FAILURES = 3
FILES: set[str] = {__file__}
"""Files of hooks, whose frames no error message shows."""
_OWN = __name__.partition(".")[0] + "."


def wanted() -> bool:
    """Return whether hooks may be installed in this process."""
    return os.environ.get(VARIABLE, "").strip().lower() not in ("off", "0", "no", "false")


def unseen(error: BaseException) -> None:
    """Remove tfmon's frames from the beginning of an error's traceback; call it before a bare `raise`.

    A bare `raise` adds no frame, so that the traceback goes on in the caller of the hook.
    """
    trace = error.__traceback__
    while trace is not None and str(trace.tb_frame.f_globals.get("__name__", "")).startswith(_OWN):
        trace = trace.tb_next
    error.__traceback__ = trace


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
    scope: contextlib.AbstractContextManager[Any] = _filter()()
    return scope


class Hooks:
    """The methods that were replaced, and the failures of what replaced them.

    Thread: any.
    """

    def __init__(self, failed: Callable[[str], None], reset: Callable[[], None]) -> None:
        """Replace nothing yet.

        Args:
            failed: is called with the reason when the originals were restored.
            reset: is called after each failure, and forgets what was half done.
        """
        self.failures = 0
        self.off = False
        """True once the originals are restored: a hook that another library has wrapped does nothing then."""
        self._failed, self._reset = failed, reset
        self._replaced: list[tuple[type, str, Any, Any]] = []

    def replace(self, owner: type, name: str, make: Callable[[Any], Any]) -> None:
        """Replace a method that `owner` itself defines by `make(original)`; do nothing if it defines none."""
        own = owner.__dict__.get(name)
        if not callable(own) or any(owner is one and name == its for one, its, _, _ in self._replaced):
            return
        hook = functools.wraps(own)(make(own))
        setattr(owner, name, hook)
        self._replaced.append((owner, name, own, hook))

    def switch(self, *, on: bool) -> None:
        """Put the hooks in place, or the originals for a while, to measure what the hooks cost."""
        for owner, name, own, hook in self._replaced:
            setattr(owner, name, hook if on else own)

    def failure(self, error: Exception) -> None:
        """Count an error of a hook, and restore the originals after too many."""
        self.failures += 1
        try:
            self._reset()
            if self.failures >= MOST_FAILURES and not self.off:
                self.restore()
                self._failed(f"{type(error).__name__}: {error}")
        except Exception:  # noqa: BLE001 - the script must go on, whatever is wrong with this
            self.off = True

    def restore(self) -> None:
        """Put the originals back."""
        self.off = True
        replaced, self._replaced = self._replaced, []
        for owner, name, own, hook in replaced:
            if owner.__dict__.get(name) is hook:
                setattr(owner, name, own)
