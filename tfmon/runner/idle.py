"""Which GPU a lane gets that names none: the idlest of its machine; and waiting until one is free."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import click

from tfmon import units
from tfmon.analysis.idlest import is_free, ranked, state, why, why_several
from tfmon.errors import GpusBusyError
from tfmon.model.readings import GpuSample
from tfmon.model.spec import ANY_GPU, LaneSpec
from tfmon.probes.base import Gpu
from tfmon.probes.gpus import GpuSearch
from tfmon.runner.devices import EVERY, device_of

LOOK_EVERY_S = 5.0
LINE = 150
"""Characters of the line that says what is waited for."""

Search = Callable[[str], GpuSearch]
Look = Callable[[str, Sequence[Gpu]], Sequence[GpuSample]]
"""Returns one sample of each GPU of a host; "" is this machine."""


@dataclass
class Idle:
    """Chooses GPUs, for one run of tfmon: lanes of a later race get the same."""

    look: Look
    wait_s: float | None = None
    """For how long to wait until a GPU is free; None for not at all."""
    tell: Callable[[str], None] = lambda _: None
    """Gets a line that says what is waited for, again and again; "" at the end."""
    sleep: Callable[[float], object] = time.sleep
    clock_s: Callable[[], float] = time.monotonic
    chosen: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """What was chosen, and why, by host and by what was asked for: `gpu`, or several such as `4xgpu`."""

    def settle(self, specs: Sequence[LaneSpec], search: Search) -> list[LaneSpec]:
        """Return specs in which each lane has a GPU of its own; all that name none get the same on a machine.

        Lanes on several GPUs of any name, such as `4xgpu`, get the idlest ones; `gpu:all` stays.

        Raises:
            GpusBusyError: no GPU became free in time.
        """
        hosts = dict.fromkeys(spec.host for spec in specs if spec.kind == "gpu")
        wanted = {host: [spec for spec in specs if spec.host == host and spec.kind == "gpu"] for host in hosts}
        if self.wait_s is not None:
            self._wait({host: lanes for host, lanes in wanted.items() if search(host).gpus}, search, self.wait_s)
        return [spec if spec.settled or spec.device == EVERY else self._settled(spec, search) for spec in specs]

    def _settled(self, spec: LaneSpec, search: Search) -> LaneSpec:
        asked = (spec.host, spec.device)
        if asked not in self.chosen:
            found = search(spec.host)
            if spec.device == ANY_GPU:
                self.chosen[asked] = self._choose(spec.host, found.usable)
            elif len(found.whole) < spec.devices:
                return spec  # refused where the GPUs of a lane are named
            else:
                self.chosen[asked] = self._choose_several(spec.host, found.whole, spec.devices)
        device, reason = self.chosen[asked]
        return replace(spec, device=device, chosen=reason)

    def _choose(self, host: str, gpus: Sequence[Gpu]) -> tuple[str, str]:
        """Return the idlest GPU and why; the first one, for no reason, where there is no choice."""
        if len(gpus) < 2:
            return (_device(gpus[0]) if gpus else "gpu:0"), ""
        samples = self.look(host, gpus)
        if not samples:
            return _device(gpus[0]), ""
        best = ranked(samples)[0]
        return _device(next(gpu for gpu in gpus if gpu.uuid == best.key)), why(best, samples)

    def _choose_several(self, host: str, gpus: Sequence[Gpu], count: int) -> tuple[str, str]:
        """Return that many GPUs, the idlest, and why; the first ones, for no reason, where there is no choice."""
        samples = self.look(host, gpus) if len(gpus) > count else ()
        best = ranked(samples)[:count]
        if len(best) < count:
            return device_of(gpus[:count]), ""
        keys = {one.key for one in best}
        reason = why(best[0], samples) if count == 1 else why_several(best, samples)
        return device_of([gpu for gpu in gpus if gpu.uuid in keys]), reason

    # ------------------------------------------------------------ waiting

    def _wait(self, wanted: dict[str, list[LaneSpec]], search: Search, wait_s: float) -> None:
        """Wait until every lane that is to train on a GPU finds one that nobody uses."""
        began_s = self.clock_s()
        try:
            while busy := [line for host, lanes in wanted.items() for line in self._busy(host, lanes, search)]:
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

    def _busy(self, host: str, lanes: Sequence[LaneSpec], search: Search) -> list[str]:
        """Say who is on the GPUs that lanes of a host wait for; nothing once they can begin."""
        gpus = search(host).usable
        samples = {sample.key: sample for sample in self.look(host, gpus)}
        lines = []
        for gpu in gpus:
            device, sample = _device(gpu), samples.get(gpu.uuid)
            place = f"{host}/{device}" if host else device
            if any(_names(spec, gpu) for spec in lanes) and (sample is None or not is_free(sample)):
                lines.append(f"{place} {'not read' if sample is None else state(sample, named=True)}")
        if ANY_GPU in {spec.device for spec in lanes} and not any(map(is_free, samples.values())):
            first = ranked(samples.values())[:1]
            said = [state(one, named=True) for one in first]
            which = next((_device(gpu) for gpu in gpus if first and gpu.uuid == first[0].key), "gpu")
            place = f"{host}/{which}" if host else which
            lines.append(f"the idlest of {len(gpus)}, {place}: {', '.join(said) or 'not read'}")
        counted = [spec for spec in lanes if not spec.settled and spec.device not in (ANY_GPU, EVERY)]
        most = max((spec.devices for spec in counted), default=0)
        whole = [samples.get(gpu.uuid) for gpu in gpus if not gpu.part_of]
        free = sum(sample is not None and is_free(sample) for sample in whole)
        if free < most <= len(whole):
            lines.append(f"{host + ': ' if host else ''}{free} of {len(whole)} GPUs free, and {most} are needed")
        return lines


def _names(spec: LaneSpec, gpu: Gpu) -> bool:
    """Return whether a lane names this GPU: an instance by the beginning of its UUID."""
    if spec.is_instance:
        return gpu.uuid.lower().startswith(spec.device.lower())
    return not gpu.part_of and (gpu.index in spec.indexes or spec.device == EVERY)


def _device(gpu: Gpu) -> str:
    return gpu.uuid if gpu.part_of else f"gpu:{gpu.index}"


def tell_on_stderr() -> Callable[[str], None]:
    """Return what shows the line on a terminal; elsewhere it is written once, and again whenever it is another."""
    if sys.stderr.isatty():
        from tfmon.runner.headless import show_progress

        return show_progress
    last = [""]

    def tell(line: str) -> None:
        about = line.partition("): ")[2]
        if line and about != last[0]:
            last[0] = about
            click.echo(f"tfmon: {line}", err=True)

    return tell
