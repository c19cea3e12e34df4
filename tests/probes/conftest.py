"""Fixtures of the probes' tests."""

from __future__ import annotations

from support.nvml import build_fake_nvml, driver, load_driver

__all__ = ["build_fake_nvml", "driver", "load_driver"]
