"""The life of a lane's child process: hello, import, build, train, and a failure."""

from __future__ import annotations

import faulthandler
import linecache
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from tfmon.model.account import BEFORE, IMPORTS, OWN, START
from tfmon.model.account import TRACING as TRACE
from tfmon.model.knobs import KnobError
from tfmon.model.lane_events import (
    BUILDING,
    IMPORTING,
    LOWER_THE_BATCH,
    OUT_OF_MEMORY,
    TRACING,
    Built,
    LibrariesLoaded,
    PhaseEntered,
)
from tfmon.model.requests import Assign, Stop
from tfmon.system.lane_clock import lane_clock
from tfmon.trainer import runtime
from tfmon.trainer.batch_feed import MemoryShortageError
from tfmon.trainer.channel import Mailbox, Reporter, die_with_parent, exit_now, start_inbox
from tfmon.trainer.runtime import Failure
from tfmon.trainer.scenario import ScenarioError, load
from tfmon.trainer.time_parts import account

SEED = 0
"""All lanes start from the same weights."""
INSTALL = "{python} -m pip install {name}"
_COLOURS = re.compile(r"\x1b\[\d*m")
_NODES = re.compile(r"^(\{\{.*?\}\} ?)+")


def run(metric_fd: int, knob_fd: int, clock_fd: int | None = None) -> None:
    """Train the first assignment, and end the process. `clock_fd`: total time of suspensions."""
    if clock_fd is not None:
        lane_clock.follow(clock_fd)
    account.begin_process(time.monotonic_ns())
    account.switch(OWN, "waiting for its assignment")
    mailbox: Mailbox[Any] = Mailbox()
    reporter = Reporter(metric_fd)
    die_with_parent()
    reporter.hello(reports_stack=_print_stacks_on_signal())
    start_inbox(knob_fd, mailbox.post, reporter.fail)
    try:
        _live(mailbox, reporter)
    except Failure as failure:
        _flush()
        reporter.fail(failure.message, failure.kind, failure.hint)
    _exit()


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


def _exit() -> NoReturn:
    _flush()
    exit_now(0)


def _print_stacks_on_signal() -> bool:
    """Make SIGUSR1 write all stacks to stderr, also while C code hangs."""
    try:
        faulthandler.register(signal.SIGUSR1, all_threads=True)
    except (AttributeError, OSError, RuntimeError, ValueError):
        return False
    return True


def _live(mailbox: Mailbox[Any], reporter: Reporter) -> None:
    mailbox.wait()
    request = mailbox.take()
    if isinstance(request, Stop):
        return
    if not isinstance(request, Assign):
        raise Failure("protocol", f"the first request was {type(request).__name__}, not Assign")
    path = Path(request.scenario)
    account.switch(START, IMPORTS)
    reporter.send(PhaseEntered(phase=IMPORTING))
    _import_tensorflow()
    reporter.send(_set_up_device(request))
    account.switch(BEFORE, "building")
    reporter.send(PhaseEntered(phase=BUILDING))
    _in_user_code(path, lambda: _train(path, request, mailbox, reporter))


def _train(path: Path, assign: Assign, mailbox: Mailbox[Any], reporter: Reporter) -> None:
    import keras

    from tfmon.trainer.batch_feed import Pipelines
    from tfmon.trainer.loop import Loop
    from tfmon.trainer.runtime import Replicas
    from tfmon.trainer.setups import Steps

    keras.utils.set_random_seed(SEED)
    scenario = load(path)(assign.settings)
    pipelines = Pipelines(scenario, assign.devices)
    try:
        pipelines.check(assign.settings)
        replicas = Replicas(assign.device, assign.devices)
        steps = Steps(scenario, pipelines.signature(assign.settings), replicas)
        steps.check(assign.settings)
    except KnobError as error:
        raise Failure("scenario", str(error), "--set KNOB=VALUE sets it") from error
    reporter.send(
        Built(
            parameters=steps.parameters,
            examples=pipelines.examples,
            settings=dict(assign.settings),
        )
    )
    account.switch(BEFORE, TRACE)
    reporter.send(PhaseEntered(phase=TRACING))
    Loop(pipelines, steps, assign, mailbox, reporter).run()
    # Destroying the objects would take up to a second.
    _exit()


def _import_tensorflow() -> None:
    try:
        runtime.load_everything()
    except ModuleNotFoundError as error:
        missing = {"tensorflow": "TensorFlow", "numpy": "NumPy"}.get(error.name or "")
        if missing is None:
            raise _broken_tensorflow(error) from error
        install = INSTALL.format(python=sys.executable, name=error.name)
        raise Failure("no_tensorflow", f"{sys.executable} has no {missing}", install) from error
    except Exception as error:
        raise _broken_tensorflow(error) from error


def _broken_tensorflow(error: Exception) -> Failure:
    broken = "TensorFlow"
    try:
        import numpy  # noqa: F401
    except Exception as numpy_error:  # noqa: BLE001 - whatever it raises
        broken, error = "NumPy", numpy_error
    install = INSTALL.format(python=sys.executable, name=broken.lower()) + " --force-reinstall"
    return Failure("no_tensorflow", f"importing {broken} failed: {explain(error, Path())}", install)


def _set_up_device(assign: Assign) -> LibrariesLoaded:
    name = runtime.choose_device(assign.device, assign.settings.get("threads", "auto"), assign.devices)
    uuids = runtime.gpu_uuids(assign.devices) if assign.device == "gpu" else ()
    return runtime.libraries_loaded(name, uuids)


def _in_user_code(path: Path, work: Callable[[], None]) -> None:
    import tensorflow as tf

    try:
        work()
    except Failure:
        raise
    except MemoryShortageError as error:
        raise Failure(OUT_OF_MEMORY, str(error)) from error
    except (MemoryError, tf.errors.ResourceExhaustedError) as error:
        raise Failure(OUT_OF_MEMORY, f"out of memory: {explain(error, path)}", LOWER_THE_BATCH) from error
    except Exception as error:
        result = error.__traceback__
        while result is not None and Path(result.tb_frame.f_code.co_filename) != path:
            result = result.tb_next
        traceback.print_exception(error.with_traceback(result or error.__traceback__))
        raise Failure("scenario", explain(error, path)) from error


def explain(error: BaseException, path: Path) -> str:
    """Return a text about an error, with the line of the user's file."""
    if isinstance(error, ScenarioError):
        return f"{_place_of(str(error), path)}{error}"
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}: {type(error).__name__}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.lineno and Path(frame.filename) == path]
    # AutoGraph replaces frames, but the text contains the line.
    lines += [int(line) for line in re.findall(rf'File "{re.escape(str(path))}", line (\d+)', str(error))]
    line, what = (lines[-1] if lines else None), _essence(error)
    if line is None:
        return f"{path.name}: {what}" if path.suffix == ".py" else what
    code = linecache.getline(str(path), line).strip()
    return f"{path.name}:{line}: {what}" + (f"   in: {code}" if code else "")


def _place_of(text: str, path: Path) -> str:
    method = re.match(r"`(\w+)`", text)
    lines = enumerate(linecache.getlines(str(path)), 1)
    result = [number for number, line in lines if method and re.match(rf"\s+def {method[1]}\(", line)]
    return f"{path.name}:{result[0]}: " if result else f"{path.name}: " if method else ""


def _essence(error: BaseException) -> str:
    name = type(error).__name__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and lines[0].startswith(("in user code:", "Exception encountered when calling")):
        result = [index for index, line in enumerate(lines) if re.match(r"\w*(Error|Exception)\b.*:", line)]
        index = result[-1] if result else 0
        if "Exception encountered when calling" in lines[index] and index + 1 < len(lines):
            return f"{name}: {re.sub(_COLOURS, '', lines[index + 1])}"
        if result:
            return lines[index]
    if lines and lines[0] == "Graph execution error:":
        frames = [number for number, line in enumerate(lines) if line.startswith('File "')]
        message_lines = lines[frames[-1] + 1 if frames else 1 :]
        lines = [
            line for line in message_lines if not line.startswith(("Detected at node", "<stack", "[["))
        ] or lines
    return f"{name}: {re.sub(_NODES, '', lines[0])}" if lines else name
