"""Which GPUs a lane gets: those that it names, or the idlest of its machine; and waiting until they are free."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import click

from tfmon import units
from tfmon.analysis.others import is_free, ranked, state, why
from tfmon.api.devices import candidates, device_of
from tfmon.errors import GpusBusyError
from tfmon.model.readings import GpuSample
from tfmon.model.spec import LaneSpec
from tfmon.probes.base import Gpu
from tfmon.probes.gpus import GpuSearch

LOOK_EVERY_S = 5.0

Search = Callable[[str], GpuSearch]
Look = Callable[[str, Sequence[Gpu]], Sequence[GpuSample]]
"""Returns one sample of each GPU of a host; "" is this machine."""
Chosen = tuple[LaneSpec, tuple[Gpu, ...]]
"""A lane, and the GPUs that it trains on, in that order; none for the CPU."""
Wanted = tuple[str, tuple[Gpu, ...], int]
"""A host, GPUs of it, and how many of them a lane needs."""


@dataclass
class Idle:
    """Chooses GPUs, for one run of tfmon: lanes of a later race get the same."""

    look: Look = lambda host, gpus: ()
    wait_s: float | None = None
    """For how long to wait until a GPU is free; None for not at all."""
    tell: Callable[[str], None] = lambda _: None
    """Gets a progress line every few seconds; "" at the end."""
    sleep: Callable[[float], object] = time.sleep
    clock_s: Callable[[], float] = time.monotonic
    ranked: dict[str, list[GpuSample]] = field(default_factory=dict)
    """The GPUs of each host that was looked at, the idlest first."""

    def choose(self, specs: Sequence[LaneSpec], search: Search) -> list[Chosen]:
        """Return the lanes with the devices that they train on, each with its GPUs.

        All that name no GPU get the same on a machine, and `2xgpu` gets that one and the next.

        Raises:
            DeviceAbsentError: a GPU is not there, or is split up.
            UsageError: the beginning of a UUID fits several instances.
            GpusBusyError: no GPU became free in time.
        """
        found = [search(spec.host) if spec.kind == "gpu" else GpuSearch() for spec in specs]
        wanted = [(spec, one, *candidates(spec, one)) for spec, one in zip(specs, found, strict=True)]
        if self.wait_s is not None:
            self._wait([(spec.host, gpus, count) for spec, one, gpus, count in wanted if one.usable], self.wait_s)
        return [self._settled(*one) for one in wanted]

    def _settled(self, spec: LaneSpec, found: GpuSearch, gpus: tuple[Gpu, ...], count: int) -> Chosen:
        reason = ""
        if count < len(gpus):
            gpus, reason = self._idlest(spec.host, found, gpus, count)
        return (replace(spec, device=device_of(gpus, found), chosen=reason) if gpus else spec), gpus

    def _idlest(
        self, host: str, found: GpuSearch, gpus: tuple[Gpu, ...], count: int
    ) -> tuple[tuple[Gpu, ...], str]:
        """Return that many GPUs, the idlest, and why; the first ones, for no reason, where they are not read."""
        if host not in self.ranked:
            self.ranked[host] = ranked(self.look(host, found.usable))
        keys = {gpu.uuid for gpu in gpus}
        best = [sample for sample in self.ranked[host] if sample.key in keys][:count]
        if len(best) < count:
            return gpus[:count], ""
        keys = {sample.key for sample in best}
        return tuple(gpu for gpu in gpus if gpu.uuid in keys), why(best, len(gpus))

    # ------------------------------------------------------------ waiting

    def _wait(self, wanted: Sequence[Wanted], wait_s: float) -> None:
        """Wait until every lane that is to train on GPUs finds as many that nobody uses."""
        began_s = self.clock_s()
        try:
            while busy := self._busy(wanted):
                waited_s = self.clock_s() - began_s
                if waited_s >= wait_s:
                    raise GpusBusyError(
                        f"no GPU was free within {wait_s / 60:g} min: {'; '.join(busy)}",
                        "--wait-idle with more minutes waits longer; without it, gpu is the idlest as it is",
                    )
                left = f"{units.clock(wait_s - waited_s)} left, Ctrl-C leaves"
                self.tell(f"waiting for a free GPU ({left}): {'; '.join(busy)}")
                self.sleep(min(LOOK_EVERY_S, wait_s - waited_s))
        finally:
            self.tell("")

    def _busy(self, wanted: Sequence[Wanted]) -> list[str]:
        """Say who is on the GPUs that lanes wait for; nothing once they can begin."""
        seen: dict[str, list[GpuSample]] = {}
        for host in dict.fromkeys(host for host, *_ in wanted):
            every = dict.fromkeys(gpu for there, gpus, _ in wanted if there == host for gpu in gpus)
            seen[host] = ranked(self.look(host, tuple(every)))
        lines = [line for host, gpus, count in wanted for line in _who(host, gpus, count, seen[host])]
        return list(dict.fromkeys(lines))


def _who(host: str, gpus: Sequence[Gpu], count: int, samples: Sequence[GpuSample]) -> list[str]:
    """Say why a lane cannot have so many free ones of these GPUs; nothing where it can. The idlest comes first."""
    places = {gpu.uuid: gpu.uuid if gpu.part_of else f"gpu:{gpu.index}" for gpu in gpus}
    free = {one.key for one in samples if one.key in places and is_free(one)}
    if len(free) >= count:
        return []
    known = {one.key: state(one, named=True) for one in samples}
    of = f"{host}/" if host else ""
    busy = [f"{of}{place}: {known.get(key, 'not read')}" for key, place in places.items() if key not in free]
    if count == len(gpus):
        return busy
    if count > 1:
        return [f"{host + ': ' if host else ''}{len(free)} of {len(gpus)} GPUs free, and {count} are needed"]
    first = next((key for key in known if key in places), gpus[0].uuid)
    return [f"the idlest of {len(gpus)}, {of}{places[first]}: {known.get(first, 'not read')}"]


def tell_on_stderr() -> Callable[[str], None]:
    """Return the function that shows the line on a terminal; elsewhere it is written whenever it changes."""
    if sys.stderr.isatty():
        from tfmon.api.headless import show_progress

        return show_progress
    last = [""]

    def tell(line: str) -> None:
        about = line.partition("): ")[2]
        if line and about != last[0]:
            last[0] = about
            click.echo(f"tfmon: {line}", err=True)

    return tell
