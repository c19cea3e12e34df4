"""Reads stored traces in a process that has TensorFlow."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tfmon.model import codec
from tfmon.model.lane_events import Profiled, ProfileFailed
from tfmon.profile.breakdown import read_profile
from tfmon.profile.trace import TraceError


def main(chrome: str, files: Sequence[str]) -> None:
    """Print a line for each file; write the first to `chrome`."""
    for index, file in enumerate(files):
        try:
            profile = read_profile(Path(file), marker="", chrome="" if index else chrome)
        except TraceError as error:
            answer: Profiled | ProfileFailed = ProfileFailed(at_ns=0, folder=file, reason=error.message)
        else:
            answer = Profiled(at_ns=0, folder=file, profile=profile)
        sys.stdout.buffer.write(codec.encode_message(answer))
        sys.stdout.flush()
