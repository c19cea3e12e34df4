"""What differs between the machines of lanes, and may explain a ratio besides what is compared. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfmon.model.lane_state import LaneState
from tfmon.model.readings import known
from tfmon.model.session import Snapshot

HERE = "here"
"""What the monitor's own machine is called beside hosts."""


@dataclass(frozen=True, slots=True)
class MachineDifference:
    """A fact that is not the same on all machines of a race."""

    what: str
    """Such as "cores"."""
    values: tuple[tuple[str, str], ...]
    """Each host, "" for the monitor's own, and the value there, in the order of the lanes."""

    @property
    def text(self) -> str:
        """Such as "cores: 2 here, 16 on gpu2"."""
        return f"{self.what}: " + ", ".join(f"{value} {place_words(host)}" for host, value in self.values)


def place_words(host: str) -> str:
    """Return "on gpu2", or "here" for the monitor's own machine."""
    return f"on {host}" if host else HERE


def machine_differences(snapshot: Snapshot, lanes: Sequence[LaneState]) -> tuple[MachineDifference, ...]:
    """Return in what the machines of lanes differ, as far as it is known of all of them.

    The driver counts where two lanes are on GPUs, and a power limit where these are the same model: what differs
    with the device that the user chose explains nothing of its own.
    """
    if len({snapshot.machine_key(lane) for lane in lanes}) < 2:
        return ()
    on_gpus = [lane for lane in lanes if lane.spec.kind == "gpu"]
    same_model = len({snapshot.device_name(lane) for lane in on_gpus}) == 1
    facts: tuple[tuple[str, Sequence[LaneState], Callable[[Snapshot, LaneState], str]], ...] = (
        ("TensorFlow", lanes, _tensorflow),
        ("driver", on_gpus, lambda snapshot, lane: snapshot.machine_of(lane).driver),
        ("cores", lanes, _cores),
        ("quota", lanes, _quota),
        ("nice", lanes, _nice),
        ("power limit", on_gpus if same_model else (), _power_limit),
    )
    found = []
    for what, concerned, value_of in facts:
        values = {lane.spec.host: value_of(snapshot, lane) for lane in concerned}
        if all(values.values()) and len(set(values.values())) > 1:
            found.append(MachineDifference(what, tuple(values.items())))
    return tuple(found)


def _tensorflow(snapshot: Snapshot, lane: LaneState) -> str:
    return lane.versions["tensorflow"] or snapshot.machine_of(lane).tensorflow


def _cores(snapshot: Snapshot, lane: LaneState) -> str:
    return f"{snapshot.machine_of(lane).cores or ''}"


def _quota(snapshot: Snapshot, lane: LaneState) -> str:
    machine = snapshot.machine_of(lane)
    if machine.quota_cores is not None:
        return f"{machine.quota_cores:g} cores"
    return "none" if machine.cores else ""


def _nice(snapshot: Snapshot, lane: LaneState) -> str:
    nice = snapshot.machine_of(lane).nice
    return "" if nice is None else str(nice)


def _power_limit(snapshot: Snapshot, lane: LaneState) -> str:
    gpu, limits = snapshot.gpu_of(lane), snapshot.machine_of(lane).power_limits_w
    limit = known(gpu.power_limit_w) if gpu is not None else None
    if limit is None and lane.spec.index < len(limits) and not lane.spec.is_instance:
        limit = limits[lane.spec.index]
    return "" if limit is None else f"{limit:.0f} W"
