"""No test records a race among the user's own."""

from __future__ import annotations

import os
import shutil
import tempfile

_FOLDER = tempfile.mkdtemp(prefix="tfmon-tests-")
os.environ["TFMON_RECORDINGS"] = _FOLDER


def pytest_unconfigure() -> None:
    shutil.rmtree(_FOLDER, ignore_errors=True)
