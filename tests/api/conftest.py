"""Races begun from Python, with the user's settings and GPUs out of the way."""

import pytest
from cli.conftest import no_settings_and_no_gpu, scripted, tfmon  # noqa: F401 - fixtures


@pytest.fixture(autouse=True)
def even(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep windows equal for a scripted child that the machine delays."""
    monkeypatch.setenv("STOPPED", "inf")


@pytest.fixture
def command(tfmon):  # noqa: F811
    """The command line, under a name that a module has not."""
    return tfmon
