"""The life of a lane's child process, from its first words to its last."""

from __future__ import annotations

import faulthandler
import os
import platform
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from tfmon.model.knobs import KnobError
from tfmon.model.lane_events import PROTOCOL, Built, Hello, LaneFailed, LibrariesLoaded, PhaseEntered, Prepared
from tfmon.model.lane_state import BUILDING, IMPORTING, LOWER_THE_BATCH, OUT_OF_MEMORY, TRACING
from tfmon.model.wire import Assign, Prepare, Request, Stop
from tfmon.trainer import runtime
from tfmon.trainer.channel import Inbox, Mailbox, Reporter, die_with_parent, leave
from tfmon.trainer.loader import explain, load
from tfmon.trainer.pipeline import MemoryShortageError

SEED = 0
"""All lanes start from the same weights."""
Loaded = TypeVar("Loaded")
INSTALL_TENSORFLOW = "{python} -m pip install tensorflow"


class Failure(Exception):
    """Why this lane cannot go on; becomes a LaneFailed."""

    def __init__(self, kind: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.hint = hint


def run(metric_fd: int, knob_fd: int) -> None:
    """Train what the first request says, report on `metric_fd`, and end the process."""
    mailbox: Mailbox[Any] = Mailbox()
    reporter = Reporter(metric_fd)
    die_with_parent()
    hello = Hello(
        at_ns=time.monotonic_ns(),
        protocol=PROTOCOL,
        pid=os.getpid(),
        python=platform.python_version(),
        reports_stack=tell_stack_on_signal(),
    )
    reporter.send(hello)
    Inbox(knob_fd, mailbox.post).start()
    code = 0
    try:
        _live(mailbox, reporter)
    except Failure as failure:
        code = 1
        reporter.send(
            LaneFailed(at_ns=time.monotonic_ns(), kind=failure.kind, message=failure.message, hint=failure.hint)
        )
        reporter.drain(timeout_s=1.0)
    _leave(code)


def _leave(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    leave(code)


def tell_stack_on_signal() -> bool:
    """Write the stacks of all threads to stderr on SIGUSR1, even while the main thread hangs in C; return True.

    Errors: False where that cannot be had.
    """
    try:
        faulthandler.register(signal.SIGUSR1, all_threads=True)
    except (AttributeError, OSError, RuntimeError, ValueError):  # no such signal, or no stderr
        return False
    return True


def _live(mailbox: Mailbox[Any], reporter: Reporter) -> None:
    assign = _next(mailbox)
    if isinstance(assign, Prepare):
        if not _import_tensorflow(runtime.load_yielding):
            return
        reporter.send(Prepared(at_ns=time.monotonic_ns()))
        assign = _next(mailbox)
    if isinstance(assign, Stop):
        return
    if not isinstance(assign, Assign):
        raise Failure("protocol", f"the first request was {type(assign).__name__}, not Assign")
    os.environ.update(assign.environment)
    path = Path(assign.scenario)
    reporter.send(PhaseEntered(at_ns=time.monotonic_ns(), phase=IMPORTING))
    _import_tensorflow(runtime.load_everything)
    reporter.send(_equip(assign))
    reporter.send(PhaseEntered(at_ns=time.monotonic_ns(), phase=BUILDING))
    _in_user_code(path, lambda: _train(path, assign, mailbox, reporter))


def _next(mailbox: Mailbox[Any]) -> Request | None:
    mailbox.wait()
    request: Request | None = mailbox.take()
    return request


def _train(path: Path, assign: Assign, mailbox: Mailbox[Any], reporter: Reporter) -> None:
    import keras

    from tfmon.trainer.loop import Loop
    from tfmon.trainer.pipeline import Pipelines
    from tfmon.trainer.steps import Steps

    keras.utils.set_random_seed(SEED)
    scenario = load(path)(assign.settings)
    pipelines = Pipelines(scenario)
    try:
        pipelines.check(assign.settings)
        steps = Steps(scenario, pipelines.signature(assign.settings))
        steps.check(assign.settings)
    except KnobError as error:
        raise Failure("scenario", str(error), "--set KNOB=VALUE sets it") from error
    reporter.send(
        Built(
            at_ns=time.monotonic_ns(),
            parameters=steps.parameters,
            examples=pipelines.examples,
            settings=dict(assign.settings),
        )
    )
    reporter.send(PhaseEntered(at_ns=time.monotonic_ns(), phase=TRACING))
    loop = Loop(pipelines, steps, assign, mailbox, reporter)
    loop.run()
    # From here, where all is still held: letting go of pipelines and models takes up to a second.
    _leave(0)


def _import_tensorflow(load: Callable[[], Loaded]) -> Loaded:
    try:
        return load()
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise _broken_tensorflow(error) from error
        raise Failure(
            "no_tensorflow",
            f"{sys.executable} has no TensorFlow",
            INSTALL_TENSORFLOW.format(python=sys.executable),
        ) from error
    except Exception as error:
        raise _broken_tensorflow(error) from error


def _broken_tensorflow(error: Exception) -> Failure:
    return Failure(
        "no_tensorflow",
        f"importing TensorFlow failed: {explain(error, Path())}",
        INSTALL_TENSORFLOW.format(python=sys.executable) + " --force-reinstall",
    )


def _equip(assign: Assign) -> LibrariesLoaded:
    import keras
    import numpy as np
    import tensorflow as tf

    from tfmon.trainer import runtime

    try:
        name = runtime.settle(assign.device, assign.settings.get("threads", "auto"))
    except runtime.DeviceMissingError as error:
        raise Failure("device_absent", str(error)) from error
    return LibrariesLoaded(
        at_ns=time.monotonic_ns(),
        tensorflow=tf.__version__,
        keras=keras.__version__,
        numpy=np.__version__,
        device_name=name,
        gpu_uuid=runtime.gpu_uuid() if assign.device == "gpu" else None,
    )


def _in_user_code(path: Path, work: Callable[[], None]) -> None:
    """Run what may fail for reasons that lie in the user's file or in the size of the machine."""
    import tensorflow as tf

    try:
        work()
    except Failure:
        raise
    except MemoryShortageError as error:
        raise Failure(OUT_OF_MEMORY, str(error)) from error
    except (MemoryError, tf.errors.ResourceExhaustedError) as error:
        raise Failure(
            OUT_OF_MEMORY,
            f"out of memory: {explain(error, path)}",
            LOWER_THE_BATCH,
        ) from error
    except Exception as error:
        import traceback

        traceback.print_exc()
        raise Failure("scenario", explain(error, path)) from error
