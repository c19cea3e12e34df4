"""Notices that PyTorch, JAX or a session of TensorFlow 1 trains: only `tfmon.report` sees their steps.

Source: PyTorch's hook after the step of any optimizer. JAX has no hook for an update, so a script that has loaded
it and calls `jax.grad` or `jax.value_and_grad`, or reports nothing for a while, is told.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tfmon.model.threads import start_hidden
from tfmon.script.hooking import hooks

ENOUGH_S = 5.0
"""A script that has not reported a step this long after the first update is told how to."""
LOADED_S = 30.0
"""The same for JAX, whose updates may not be seen, from when it was loaded on."""
LINES = "from tfmon import report; and after each step: report.step(examples=len(x), loss=loss)"


class OtherLibrary:
    """Waits a while for a report after the first update that another library makes."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Wait for a library; `say` is called with the reason, in a thread of its own, if no step was reported."""
        self._say = say
        self._noticed = False

    def watch(self, module: Any) -> None:  # noqa: ANN401
        """Watch PyTorch, JAX or TensorFlow, which is loaded."""
        if module.__name__ == "torch":
            register = module.optim.optimizer.register_optimizer_step_post_hook
            register(lambda *_args: self._trains("PyTorch"))
            return
        if module.__name__ == "tensorflow":
            from tensorflow.python.client.session import BaseSession

            hooks.replace(BaseSession, "run", hooks.around(self._runs_session))
            return
        for name in ("grad", "value_and_grad"):
            hooks.replace(module, name, hooks.around(lambda *_args, **_more: self._trains("JAX")))
        self._say_after(LOADED_S, f"JAX is loaded, and nothing tells tfmon of its steps. Add: {LINES}")

    def _runs_session(self, *_args: object, **_more: object) -> None:
        if not self._noticed:
            self._noticed = True
            self._say(f"the script runs a session of TensorFlow 1, whose steps are not seen. Add: {LINES}")

    def _trains(self, name: str) -> None:
        if not self._noticed:
            self._noticed = True
            self._say_after(ENOUGH_S, f"{name} trains here. Add: {LINES}")

    def _say_after(self, seconds: float, reason: str) -> None:
        def say() -> None:
            time.sleep(seconds)
            self._say(reason)

        start_hidden("tfmon-others", say, lambda _failure: None)
