"""Watches the libraries that a script loads, with one watcher for all its training loops.

Steps of PyTorch, JAX and TensorFlow 1 sessions are seen only through `tfmon.report`. Source: PyTorch's hook after
an optimizer step. JAX has no such hook: a hint follows a call of `jax.grad` or `jax.value_and_grad`,
or a while without reports.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import time
from typing import Any

from tfmon.model.lane_pipes import is_open, read_pipes
from tfmon.model.threads import start_hidden
from tfmon.script import process, watched
from tfmon.script.causes import causes
from tfmon.script.hooking import hooks, wanted
from tfmon.script.retracing import retracing

REPORT = "Tell tfmon what a step is: report.step"
KERAS = ("keras", "tf_keras")


def loaded(module: Any) -> None:  # noqa: ANN401
    """Watch a library that the script has just loaded."""
    if module.__name__ == "tensorflow":
        from tfmon.trainer.runtime import split_cpu

        pipes = read_pipes(os.environ)
        if pipes is not None and pipes.kind == "cpu" and pipes.devices > 1 and is_open(pipes):
            with contextlib.suppress(RuntimeError, ValueError):  # TensorFlow is in use already
                split_cpu(pipes.devices)
    if not wanted():
        return
    if module.__name__ == "tensorflow":
        from tfmon.script.levers import levers
        from tfmon.script.pipeline import Pipeline
        from tfmon.script.tf_hooks import TensorFlowHooks

        levers.loaded_tensorflow(module)
        watched.tensorflow = TensorFlowHooks(watched.watcher, hooks)
        watched.watcher.all_seen = _all_seen
        watched.tensorflow.install()
        for name in KERAS:  # TensorFlow may have loaded it while it was loaded itself
            if hasattr(sys.modules.get(name), "optimizers"):
                watched.tensorflow.watch_optimizers(sys.modules[name])
        watched.pipeline = pipeline = Pipeline(hooks, process.joined, watched.watcher)
        watched.watcher.trains = pipeline.reads.trains
        atexit.register(_unseen)
        pipeline.install()
        _watch_forks()
    if module.__name__ in ("tensorflow", "torch", "jax"):
        watch_other(module)
        return
    from tfmon.script.keras_watch import watch
    from tfmon.script.levers import levers

    watch(module)
    levers.loaded_keras(module, hooks)
    if watched.tensorflow is not None:
        watched.tensorflow.watch_optimizers(module)


@functools.cache
def _watch_forks() -> None:
    os.register_at_fork(after_in_child=hooks.guard(lambda: watched.watcher.forked()))


def begin(finder: Any) -> None:  # noqa: ANN401
    """Watch this process, which may have loaded libraries. `finder` finds later imports; see `site`."""
    causes.begin()
    retracing.begin()
    hooks.begin()
    watched.begin()
    _told.clear()
    sys.meta_path.insert(0, finder)
    hooks.undo.append(lambda: sys.meta_path.remove(finder) if finder in sys.meta_path else None)
    for name in ("tensorflow", *KERAS, "torch", "jax"):
        if name in sys.modules:
            loaded(sys.modules[name])


def end() -> None:
    """Report what is left, and undo `begin`."""
    _unseen()
    atexit.unregister(_unseen)
    process.leave()
    hooks.restore()
    watched.begin()


def let_report() -> None:
    """Stop watching loops. The script reports its steps itself."""
    lane = process.joined()
    watched.watcher.retire(reported=True)
    if lane is not None and watched.watcher.lane is not None:
        lane.meter.forget_start()


def _all_seen() -> None:
    lane = process.joined()
    if lane is not None and watched.tensorflow is not None:
        watched.tensorflow.optimizers.offer(lane)


def _not_reported(reason: str) -> None:
    pipes = read_pipes(os.environ)
    if process.joined() is not None or pipes is None or not is_open(pipes):
        return
    process.tell(pipes, "steps", reason)


@hooks.guard
def _unseen() -> None:
    if watched.tensorflow is None or watched.watcher.off or process.joined() is not None or SESSION in _told:
        return
    if watched.tensorflow.optimizers.count:
        _not_reported(f"optimizers were applied where their updates are not seen, as in tf.data. {REPORT}")
    elif given := watched.watcher.step.given:
        calls = f"gradients were computed in {given.total()} calls, and no update was seen that uses them"
        _not_reported(f"{calls}: updates by hand in a loop or branch of a graph are not seen. {REPORT}")


def _hooks_failed(reason: str) -> None:
    watched.watcher.retire()
    lane = process.joined()
    if lane is not None:
        lane.cannot_know("steps", f"tfmon's hooks failed and were removed ({reason}); tfmon.report still works")


hooks.failed, hooks.reset = _hooks_failed, lambda: watched.watcher.forget()


ENOUGH_S = 5.0
"""Delay after the first update before a script without reports gets a hint."""
LOADED_S = 30.0
"""Delay after JAX was loaded. Its updates may not be seen."""
LINES = "from tfmon import report; and after each step: report.step(examples=len(x), loss=loss)"
SESSION = f"the script runs a session of TensorFlow 1, whose steps are not seen. Add: {LINES}"
_told: set[str] = set()


def watch_other(module: Any) -> None:  # noqa: ANN401
    """Report the first update of PyTorch, JAX or a TensorFlow 1 session. Call it after the import."""
    if module.__name__ == "torch":
        register = module.optim.optimizer.register_optimizer_step_post_hook
        handle = register(lambda *_args: tell_later(ENOUGH_S, f"PyTorch trains here. Add: {LINES}"))
        hooks.undo.append(handle.remove)
    elif module.__name__ == "tensorflow":
        from tensorflow.python.client.session import BaseSession

        hooks.replace(BaseSession, "run", hooks.around(lambda *_args, **_more: tell_later(0, SESSION)))
    else:
        trains = f"JAX trains here. Add: {LINES}"
        for name in ("grad", "value_and_grad"):
            hooks.replace(module, name, hooks.around(lambda *_args, **_more: tell_later(ENOUGH_S, trains)))
        tell_later(LOADED_S, f"JAX is loaded, and nothing tells tfmon of its steps. Add: {LINES}")


def tell_later(seconds: float, reason: str) -> None:
    """Report after a delay why no step is seen, unless a step is seen before."""

    def say() -> None:
        time.sleep(seconds)
        _not_reported(reason)

    if reason not in _told:
        _told.add(reason)
        if seconds:
            start_hidden("tfmon-others", say, lambda _failure: None)
        else:
            say()
