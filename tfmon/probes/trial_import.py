"""A trial import of TensorFlow."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tfmon.model.codec import clean
from tfmon.probes.interpreter import NO_CWD
from tfmon.system.programs import run_program

_MARK = "tfmon-doctor:"
_LONGEST = 60_000
_IMPORT = (
    NO_CWD
    + f"""
import json
import tensorflow as tf
found = {{
    "version": tf.__version__,
    "path": tf.__file__ or "",
    "gpus": [one.name for one in tf.config.list_physical_devices("GPU")],
    "built_with_cuda": bool(tf.test.is_built_with_cuda()),
}}
print({_MARK!r} + json.dumps(found), flush=True)
"""
)


@dataclass(frozen=True, slots=True)
class Import:
    """The result of a trial import."""

    exit_code: int | None = 0
    """Negative for a signal; `None` if it took too long."""
    version: str = ""
    path: str = ""
    gpus: tuple[str, ...] = ()
    built_with_cuda: bool | None = None
    text: str = ""
    seconds: float = 0.0

    @property
    def works(self) -> bool:
        """Whether the import worked."""
        return self.exit_code == 0 and bool(self.version)


def import_tensorflow(
    python: str | Path, *, environ: Mapping[str, str], timeout_s: float = 60.0, script: str = _IMPORT
) -> Import:
    """Import TensorFlow in a child. Thread: any; blocks."""
    begun = time.monotonic()
    exit_code: int | None = None
    messages = {**environ, "TF_CPP_MIN_LOG_LEVEL": "0"}
    try:
        done = run_program([str(python), "-c", script], timeout_s, environ=messages)
        exit_code, out, text = done.returncode, done.stdout, done.stderr
    except OSError as error:
        return Import(exit_code=127, text=f"{python} cannot be started: {error.strerror}")
    except subprocess.TimeoutExpired as late:
        out, text = late.output, str(late.stderr)
    line = next((line for line in reversed(out.splitlines()) if line.startswith(_MARK)), "")
    result = Import(exit_code, text=clean(text[-_LONGEST:], _LONGEST), seconds=time.monotonic() - begun)
    try:
        facts = json.loads(line.removeprefix(_MARK))
    except ValueError:
        return result
    return replace(result, **{**facts, "gpus": tuple(facts["gpus"])})
