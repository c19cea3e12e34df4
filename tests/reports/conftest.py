"""The command line and reports, without the script that draws."""

import pytest
from cli.conftest import folder, no_settings_and_no_gpu, run, tfmon

from tfmon.reports import html

__all__ = ["folder", "no_settings_and_no_gpu", "run", "tfmon"]


@pytest.fixture(autouse=True)
def without_charts(monkeypatch):
    """Reports without the script that draws, which takes seconds to put together."""
    monkeypatch.setattr(html, "charts_script", lambda: "window.vegaEmbed = () => {};")
