"""Notices that PyTorch or JAX trains without `tfmon.report`, which alone sees their steps.

Source: PyTorch's hook after the step of any optimizer; calls of `jax.grad` and `jax.value_and_grad`, since JAX has
no hook for an update.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tfmon.script.hooking import unseen

ENOUGH_S = 5.0
"""A script that has not reported a step this long after the first update is told how to."""
LINES = "from tfmon import report; and after each step: report.step(examples=len(x), loss=loss)"


class OtherLibrary:
    """Waits a while for a report after the first update that another library makes."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Wait for a library; `say` is called with the reason, in a thread of its own, if no step was reported."""
        self._say = say
        self._timer: threading.Timer | None = None

    def watch(self, module: Any) -> None:  # noqa: ANN401
        """Watch PyTorch or JAX, which is loaded."""
        if module.__name__ == "torch":
            register = module.optim.optimizer.register_optimizer_step_post_hook
            register(lambda *_args: self._trains("PyTorch"))
            return
        for name in ("grad", "value_and_grad"):
            setattr(module, name, self._noticed(getattr(module, name)))

    def _noticed(self, own: Any) -> Any:  # noqa: ANN401
        import functools

        @functools.wraps(own)
        def gradients(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            try:
                self._trains("JAX")
                return own(*args, **kwargs)
            except BaseException as error:
                unseen(error)
                raise

        return gradients

    def _trains(self, name: str) -> None:
        if self._timer is not None:
            return
        self._timer = threading.Timer(ENOUGH_S, self._say, (f"{name} trains here. Add: {LINES}",))
        self._timer.name, self._timer.daemon = "tfmon-others", True
        self._timer.start()
