"""Where the lanes train, in words: their machines, and the connections to those of other hosts. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from tfmon import units
from tfmon.model.hosts import HostState
from tfmon.model.lane_state import HOST_LOST, LaneState
from tfmon.model.race import TURNS
from tfmon.model.session import STALE_TICKS, Snapshot
from tfmon.model.spec import LaneSpec
from tfmon.ui.render.rows import Row
from tfmon.ui.render.style import TEXT, TROUBLE, strong

# ---------------------------------------------------------------- the machines of a race


def machines(snapshot: Snapshot) -> list[tuple[str, HostState]]:
    """Return the machines that the lanes train on, each once, by the first name that a lane has for it.

    Before there are lanes it is the monitor's own.
    """
    found: dict[str, tuple[str, HostState]] = {}
    for lane in snapshot.lanes:
        found.setdefault(snapshot.machine_key(lane), (lane.spec.host, snapshot.place_of(lane)))
    return list(found.values()) or [("", snapshot.hosts[""])]


def count_row(snapshot: Snapshot) -> Row:
    """Return how many machines the lanes train on, or the name of the only one, and how many are lost."""
    found = machines(snapshot)
    lost = sum(bool(state.lost) for _, state in found)
    words = found[0][0] if len(found) == 1 else f"{len(found)} machines"
    told = "" if not lost else " is lost" if len(found) == 1 else f", {lost} lost"
    return ((words, TEXT), (told, strong(TROUBLE))) if told else ((words, TEXT),)


def own_names(snapshot: Snapshot) -> str:
    """Name the machines that the lanes train on, the monitor's own by its hostname; "" where `count_row` does."""
    found = machines(snapshot)
    if len(found) == 1 and found[0][0]:
        return ""
    return ", ".join(host or state.machine.hostname or "here" for host, state in found)


def turns_words(snapshot: Snapshot) -> str:
    """Say how lanes of several machines wait for each other; empty for those of one machine."""
    count = snapshot.machines
    if snapshot.race.mode != TURNS or count < 2:
        return ""
    return "in rounds" if count == len(snapshot.lanes) else "turns on each machine"


def mode_said(snapshot: Snapshot, mode: str) -> str:
    """Say how the lanes train after a change of the mode."""
    count, lanes = snapshot.machines, len(snapshot.lanes)
    if mode == TURNS:
        if count < 2:
            return "taking turns"
        return "each round begins on all machines together" if count == lanes else "taking turns on each machine"
    if count == lanes > 1:
        return "all lanes train at once: none waits for another"
    shared = "they share the cores" if count < 2 else "those of one machine share its cores"
    return f"all lanes train at once: {shared}"


def device_words(host: str, device: str, *, named: bool) -> str:
    """Write a device in a sentence: `the GPU`; where machines are named, `the GPU of gpu2` and `the CPU here`."""
    spec = LaneSpec(device)
    if spec.devices > 1:
        words = f"{spec.devices} {'GPUs' if spec.kind == 'gpu' else 'logical CPUs'}"
    else:
        number = device.partition(":")[2]
        words = {"cpu": "the CPU", "gpu:0": "the GPU"}.get(device) or (f"GPU {number}" if number else device)
    if not named:
        return words
    return f"{words} of {host}" if host else f"{words} here"


def lane_names(snapshot: Snapshot, lane: LaneState) -> list[str]:
    """Return what a lane may be called, the longest first; in a race with other machines it is named by its place.

    Where there is little room, a place has no user and no domain.
    """
    if not any(one.spec.host for one in snapshot.lanes):
        counted = f"{lane.spec.devices}x{lane.spec.kind}"
        return [lane.title, lane.short_title, *([counted] if lane.spec.devices > 1 else [])]
    place, short = lane.spec.place, lane.short_title
    settings = "" if short == place else short.removeprefix(f"{place}, ")
    brief = "/".join(filter(None, (_brief(lane.spec.host), lane.spec.device)))
    return [
        lane.title,
        *(f"{where}, {settings}" if settings else where for where in (place, brief)),
        place,
        brief,
    ]


def _brief(host: str) -> str:
    """Return the host of a destination without user and domain; an address stays whole."""
    name = host.rpartition("@")[2]
    return name if name.replace(".", "").isdecimal() or ":" in name else name.partition(".")[0]


# ---------------------------------------------------------------- making a connection


def connecting(snapshot: Snapshot, lane: LaneState) -> bool:
    """Return whether the connection to the machine of a lane is being made."""
    state = snapshot.place_of(lane)
    return bool(lane.spec.host) and state.connected_ns is None and not state.lost


def again_words(snapshot: Snapshot, lane: LaneState) -> str:
    """Say how far the connection is that a failed lane was lost with; empty where it is still lost."""
    host, state = lane.spec.host, snapshot.place_of(lane)
    if lane.trouble is None or lane.trouble.kind != HOST_LOST or state.lost:
        return ""
    return f"connecting to {host} again…" if connecting(snapshot, lane) else f"{host} is connected again"


def starting_words(snapshot: Snapshot, lane: LaneState) -> str:
    """Say what the start of a lane waits for: its process, or the connection to its machine."""
    if not lane.spec.host:
        return "starting Python"
    waits = "connecting to" if connecting(snapshot, lane) else "starting Python on"
    return f"{waits} {lane.spec.host}"


# ---------------------------------------------------------------- a connection


def silent_s(snapshot: Snapshot, lane: LaneState) -> float | None:
    """Return for how long nothing has come from the machine of a lane; None while something does."""
    host, state = lane.spec.host, snapshot.place_of(lane)
    if not host or lane.over or state.lost or state.sample is None:
        return None
    heard_ns = [one.heartbeat.heard_ns or 0 for one in snapshot.lanes if one.spec.host == host]
    age_s = (snapshot.at_ns - max(state.sample.at_ns, *heard_ns)) / 1e9
    return age_s if age_s > STALE_TICKS else None


def lines(snapshot: Snapshot, lane: LaneState) -> Iterator[tuple[str, str]]:
    """Yield the connection to the machine of a lane, for its page; nothing for the monitor's own machine."""
    host, state = lane.spec.host, snapshot.place_of(lane)
    if not host:
        return
    link = state.link
    if state.lost and state.lost_ns is not None:
        yield "lost", f"{units.seconds(max(0, snapshot.at_ns - state.lost_ns) / 1e9)} ago: {state.lost}"
    elif state.connected_ns is None:
        yield "state", "connecting…"
    else:
        for_s = units.clock((snapshot.at_ns - state.connected_ns) / 1e9)
        hush_s = silent_s(snapshot, lane)
        hush = "" if hush_s is None else f"; nothing came for {units.seconds(hush_s)}"
        yield "state", f"connected for {for_s}{hush}"
    if link is None:
        yield "round trip", "n/a (not measured yet)"
    else:
        yield "round trip", f"{units.milliseconds(link.round_trip_ns / 1e6)} from tfmon to the agent and back"
        error = units.milliseconds(link.error_ns / 1e6)
        yield "clock offset", f"{units.offset(link.offset_ns)}, known to ±{error}; added to every stamp from there"
        cpu = units.reading(link.agent_cpu_pct, lambda value: f"{value:.1f} % of a core")
        memory = units.reading(link.agent_bytes, units.memory)
        yield "agent", f"{cpu} and {memory} there"
    alike = sorted({one.spec.place for one in snapshot.lanes if _shares(snapshot, one, lane)})
    if alike:
        yield "one machine", f"with {', '.join(alike)}: these lanes take turns"


def _shares(snapshot: Snapshot, one: LaneState, lane: LaneState) -> bool:
    """Return whether a lane of another name is on the same machine."""
    same = snapshot.machine_key(one) == snapshot.machine_key(lane)
    return same and one.spec.host != lane.spec.host
