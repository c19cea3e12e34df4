"""The command line in the test's own process, and the header of a recording."""

import pytest
from cli.conftest import folder, no_settings_and_no_gpu, run, scripted, tfmon
from support.recordings import RECORDED

from tfmon.recordings.reader import Recording

__all__ = ["folder", "no_settings_and_no_gpu", "run", "scripted", "tfmon"]


@pytest.fixture(scope="module")
def header():
    with Recording(RECORDED) as opened:
        return opened.header
