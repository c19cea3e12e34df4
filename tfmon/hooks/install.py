"""Patches loaded libraries. Other libraries' steps are seen only through `tfmon.report`."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import time
from typing import Any

from tfmon.hooks.cause_reports import causes
from tfmon.hooks.patches import hooks, wanted
from tfmon.hooks.process_account import begin_block, begin_process
from tfmon.hooks.retracing import retracing
from tfmon.hooks.script_process import process, report_unmeasured
from tfmon.hooks.step_causes import step_causes
from tfmon.system.lane_pipes import is_open, read_pipes
from tfmon.system.threads import start_hidden

REPORT = "Tell tfmon what a step is: report.step"
KERAS = ("keras", "tf_keras")


def loaded(module: Any) -> None:
    """Patch a library that was just loaded."""
    if module.__name__ == "tensorflow":
        from tfmon.trainer.runtime import split_cpu

        pipes = read_pipes(os.environ)
        if pipes is not None and pipes.kind == "cpu" and pipes.devices > 1 and is_open(pipes):
            with contextlib.suppress(RuntimeError, ValueError):  # TensorFlow is in use already
                split_cpu(pipes.devices)
    if not wanted():
        return
    begin_process()
    if module.__name__ == "tensorflow":
        from tfmon.hooks.apply_settings import levers
        from tfmon.hooks.pipeline_knobs import Pipeline
        from tfmon.hooks.tf_hooks import TensorFlowHooks

        levers.loaded_tensorflow(module)
        step_causes.install(module)
        process.tensorflow = TensorFlowHooks(process.steps, hooks)
        process.steps.all_seen = _all_seen
        process.steps.report.variables = process.tensorflow.variables
        process.tensorflow.install()
        for name in KERAS:  # TensorFlow may have loaded it
            if hasattr(sys.modules.get(name), "optimizers"):
                process.tensorflow.patch_optimizers(sys.modules[name])
        process.pipeline = pipeline = Pipeline(hooks, process.joined, process.steps)
        process.steps.trains = pipeline.reads.trains
        atexit.register(_unseen)
        pipeline.install()
        _follow_forks()
    if module.__name__ in ("tensorflow", "torch", "jax"):
        patch_other(module)
        return
    from tfmon.hooks import keras_calls
    from tfmon.hooks.apply_settings import levers

    keras_calls.patch(module)
    step_causes.patch(module)
    levers.loaded_keras(module, hooks)
    if process.tensorflow is not None:
        process.tensorflow.patch_optimizers(module)


@functools.cache
def _follow_forks() -> None:
    os.register_at_fork(after_in_child=hooks.guard(_forked))


def _forked() -> None:
    process.steps.forked()
    begin_process()


def begin(finder: Any) -> None:
    """Watch this process. `finder` handles later imports."""
    causes.begin()
    retracing.begin()
    step_causes.begin()
    hooks.begin()
    process.begin()
    _reported.clear()
    hooks.undo.append(begin_block().stop)
    sys.meta_path.insert(0, finder)
    hooks.undo.append(lambda: sys.meta_path.remove(finder) if finder in sys.meta_path else None)
    for name in ("tensorflow", *KERAS, "torch", "jax"):
        if name in sys.modules:
            loaded(sys.modules[name])


def end() -> None:
    """Report the rest, and undo `begin`."""
    _unseen()
    atexit.unregister(_unseen)
    process.leave()
    hooks.restore()
    process.begin()


def stop_watching() -> None:
    """Stop watching, because the script reports its steps."""
    lane = process.joined()
    process.steps.retire(reported=True)
    if lane is not None and process.steps.lane is not None:
        lane.meter.forget_start()


def _all_seen() -> None:
    lane = process.joined()
    if lane is not None and process.tensorflow is not None:
        process.tensorflow.optimizers.offer(lane)


def _not_reported(reason: str) -> None:
    pipes = read_pipes(os.environ)
    if process.joined() is not None or pipes is None or not is_open(pipes):
        return
    report_unmeasured(pipes, "steps", reason)


@hooks.guard
def _unseen() -> None:
    process.report_untrained()
    if process.tensorflow is None or process.steps.off or process.joined() is not None or SESSION in _reported:
        return
    if process.tensorflow.optimizers.count:
        _not_reported(f"optimizers were applied where their updates are not seen, as in tf.data. {REPORT}")
    elif gradients := process.steps.step.gradient_rows:
        calls = f"gradients were computed in {gradients.total()} calls, and no update was seen that uses them"
        _not_reported(f"{calls}: updates by hand in a loop or branch of a graph are not seen. {REPORT}")


def _hooks_failed(reason: str) -> None:
    process.steps.retire()
    lane = process.joined()
    if lane is not None:
        lane.cannot_know("steps", f"tfmon's hooks failed and were removed ({reason}); tfmon.report still works")


def _hook_failed(reason: str) -> None:
    process.steps.forget()
    lane = process.joined()
    if lane is not None:
        lane.cannot_know("failed hooks", f"an error of tfmon in the script ({reason}): a step may be missing")


hooks.failed, hooks.reset = _hooks_failed, _hook_failed


ENOUGH_S = 5.0
"""Delay of a hint."""
LOADED_S = 30.0
"""Delay for JAX."""
LINES = "from tfmon import report; and after each step: report.step(examples=len(x), loss=loss)"
SESSION = f"the script runs a session of TensorFlow 1, whose steps are not seen. Add: {LINES}"
_reported: set[str] = set()


def patch_other(module: Any) -> None:
    """Report the first update of an unfollowed library."""
    if module.__name__ == "torch":
        register = module.optim.optimizer.register_optimizer_step_post_hook
        handle = register(lambda *_args: _report_later(ENOUGH_S, f"PyTorch trains here. Add: {LINES}"))
        hooks.undo.append(handle.remove)
    elif module.__name__ == "tensorflow":
        from tensorflow.python.client.session import BaseSession

        hooks.replace(BaseSession, "run", hooks.around(lambda *_args, **_more: _report_later(0, SESSION)))
    else:
        trains = f"JAX trains here. Add: {LINES}"
        for name in ("grad", "value_and_grad"):
            hooks.replace(module, name, hooks.around(lambda *_args, **_more: _report_later(ENOUGH_S, trains)))
        _report_later(LOADED_S, f"JAX is loaded, and nothing tells tfmon of its steps. Add: {LINES}")


def _report_later(seconds: float, reason: str) -> None:
    def report() -> None:
        time.sleep(seconds)
        _not_reported(reason)

    if reason not in _reported:
        _reported.add(reason)
        if seconds:
            start_hidden("tfmon-others", report, lambda _failure: None)
        else:
            report()
