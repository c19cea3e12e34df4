"""Readings of another machine: taken there by the probes, in the agent, and sent as lines of the codec."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from tfmon.model.codec import encode, parse, read
from tfmon.model.readings import GpuSample, HostSample, TreeSample
from tfmon.model.records import replace
from tfmon.probes.base import Gpu
from tfmon.probes.choice import choose_probes
from tfmon.probes.ticker import Ticker

EVERY_S = 1.0
Sample: TypeAlias = TreeSample | HostSample | GpuSample


class Readings:
    """The probes of this machine, each in a thread of its own.

    Stamps are those of this machine, and samples name no host: both are for the monitor to say.
    """

    def __init__(
        self,
        lanes: Callable[[], Mapping[str, int]],
        emit: Callable[[bytes], object],
        gpus: Sequence[Gpu] = (),
        *,
        every_s: float = EVERY_S,
    ) -> None:
        """Start the probes.

        Args:
            lanes: Returns the pid of each lane's first process by the lane's name.
            emit: Called with every sample as a line, in the thread of its probe.
            gpus: Those that are sampled, as the machine itself found them.
        """
        self._tickers = [
            Ticker(probe, lambda event: emit(encode(event)), interval_s=every_s)
            for probe in choose_probes(lanes, gpus)
        ]
        for ticker in self._tickers:
            ticker.start()

    def close(self) -> None:
        """End the probes; one that hangs in a driver is left alone."""
        for ticker in self._tickers:
            ticker.close()


def decode(line: bytes, host: str) -> Sample:
    """Return the sample that a host sent, with its name and its own stamps.

    Raises: CodecError for anything else. Text is cleaned, and what a newer agent adds is ignored.
    """
    sample: Sample = read(parse(line), Sample, strict=False)
    return sample if isinstance(sample, TreeSample) else replace(sample, host=host)
