"""Fixtures of the doctor's tests."""

import functools
import sys
import venv
from pathlib import Path

import pytest
from support.waiting import PATIENCE_S

from tfmon.doctor import facts

from .bench import Bench


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=sys.platform != "win32")
    return folder / "bin" / "python"


@pytest.fixture
def bench(tmp_path, monkeypatch) -> Bench:
    """Return an environment and a machine for a test to change: no GPU, TensorFlow 2.21 with all it needs."""
    if sys.platform != "linux":
        pytest.skip("the faked machine is one with Linux")
    monkeypatch.setattr(facts, "WATCH_S", 0.0)
    bench = Bench(tmp_path)
    monkeypatch.setattr(facts, "describe_interpreter", bench.describe)
    monkeypatch.setattr(facts, "open_libraries", bench.open)
    monkeypatch.setattr(facts, "read_visibility", functools.partial(facts.read_visibility, timeout_s=PATIENCE_S))
    return bench
