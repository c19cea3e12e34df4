"""TensorFlow imported in a child of the examined interpreter, with a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tfmon.doctor.facts import Import
from tfmon.doctor.interpreter import NO_CWD
from tfmon.model.text import clean

_MARK = "tfmon-doctor:"
_LONGEST = 100_000
_IMPORT = (
    NO_CWD
    + f"""
import json
import tensorflow as tf
told = {{
    "version": tf.__version__,
    "path": tf.__file__ or "",
    "gpus": [one.name for one in tf.config.list_physical_devices("GPU")],
    "cuda": bool(tf.test.is_built_with_cuda()),
}}
print({_MARK!r} + json.dumps(told), flush=True)
"""
)


def import_tensorflow(
    python: str | Path, *, environ: Mapping[str, str], timeout_s: float = 60.0, script: str = _IMPORT
) -> Import:
    """Import TensorFlow in a child, list its GPUs, and return what happened, its stderr included.

    The child is ended with all its processes when it takes longer than `timeout_s`.
    Thread: any; blocks for seconds.
    """
    told = {**environ, "TF_CPP_MIN_LOG_LEVEL": "0"}
    begun = time.monotonic()
    try:
        child = subprocess.Popen(
            [str(python), "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=told,
            start_new_session=True,
        )
    except OSError as error:
        return Import(exit_code=127, text=f"{python} cannot be started: {error.strerror}")
    exit_code: int | None
    with child:
        try:
            out, text = child.communicate(timeout=timeout_s)
            exit_code = child.returncode
        except subprocess.TimeoutExpired:
            _end(child)
            out, text = child.communicate()
            exit_code = None
        except BaseException:
            _end(child)
            raise
    return _read(exit_code, out, text, time.monotonic() - begun)


def _end(child: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


def _read(exit_code: int | None, out: str, text: str, seconds: float) -> Import:
    line = next((line for line in reversed(out.splitlines()) if line.startswith(_MARK)), "")
    text = clean(text[-_LONGEST:], _LONGEST)
    try:
        told = json.loads(line.removeprefix(_MARK))
    except ValueError:
        return Import(exit_code, text=text, seconds=seconds)
    gpus = tuple(str(name) for name in told["gpus"])
    return Import(exit_code, str(told["version"]), str(told["path"]), gpus, bool(told["cuda"]), text, seconds)
