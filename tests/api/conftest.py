"""Races begun from Python, with the user's settings and GPUs out of the way."""

from __future__ import annotations

import pytest
from cli.conftest import no_settings_and_no_gpu, scripted, tfmon  # noqa: F401 - fixtures


@pytest.fixture(autouse=True)
def even(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scripted child that the machine lets wait says of its window what it says of the others."""
    monkeypatch.setenv("STOPPED", "inf")


@pytest.fixture
def command(tfmon):  # noqa: F811
    """The command line, under a name that a module has not."""
    return tfmon
