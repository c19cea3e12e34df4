"""What every probe is, and how a GPU is named."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from tfmon.model.events import Event


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that a lane could train on."""

    index: int
    """Its number in `gpu:0`, counted from 0 over the GPUs that are not hidden, as TensorFlow counts."""
    uuid: str
    """What a lane is given to see this GPU and no other."""
    name: str
    """The model, in the driver's words."""
    board: int
    """The driver's own number for it, hidden GPUs counted too."""


class Probe(Protocol):
    """A source of readings.

    Thread: every method is called from one thread, that of the probe's ticker; only there may it block.
    """

    name: str
    """Names the thread and the probe in words, such as "host"."""

    def start(self) -> None:
        """Get ready. Called once, and again before the next sample if it failed."""

    def sample(self) -> Iterable[Event]:
        """Take one reading of everything. What cannot be read is `Missing`, and no error."""

    def missing(self, reason: str) -> Iterable[Event]:
        """Give every reading of this probe as `Missing(reason)`, for when `sample` failed as a whole."""

    def close(self) -> None:
        """Let go of the driver; nothing is asked of the probe afterwards."""
