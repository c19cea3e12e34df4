"""Fixtures of the doctor's tests."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest
from support.nvml import build_fake_nvml, driver, load_driver

from tfmon.doctor import machine as host

from .bench import ExperimentControl

__all__ = ["build_fake_nvml", "driver", "load_driver"]


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory) -> Path:
    """An interpreter that has no packages at all."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=sys.platform != "win32")
    return folder / "bin" / "python"


@pytest.fixture
def bench(bare_python, tmp_path, monkeypatch) -> ExperimentControl:
    """An environment and a machine that a test furnishes; no GPU, and TensorFlow 2.21 with all it needs."""
    if sys.platform != "linux":
        pytest.skip("the faked machine is one with Linux")
    monkeypatch.setattr(host, "WATCH_S", 0.0)
    return ExperimentControl(bare_python, tmp_path)
