"""The command line in the test's own process."""

from __future__ import annotations

from cli.conftest import folder, no_settings_and_no_gpu, run, tfmon

__all__ = ["folder", "no_settings_and_no_gpu", "run", "tfmon"]
