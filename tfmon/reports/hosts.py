"""What is known of hosts, and of the nodes of a Ray cluster, in sections and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from tfmon.lanes.remote.connection import Surveyed
from tfmon.lanes.remote.ray import RayNode
from tfmon.lanes.remote.trouble import other_python
from tfmon.model.codec import clean
from tfmon.model.race import Machine
from tfmon.reports import head, text
from tfmon.reports.sections import Lines, Report, Section, Table
from tfmon.units import cores, memory, milliseconds, offset

_HEAD = ("host", "Python", "TensorFlow", "GPUs", "cores", "memory", "round trip", "clock offset")
_NODE_HEAD = ("node", "address", "CPUs", "GPUs", "kind", "memory")


def to_text(found: Sequence[Surveyed], here: Machine, *, ascii_only: bool = False) -> str:
    """Write the hosts as text; see `describe`."""
    written = text.write(describe(found, here))
    return text.plain(written) if ascii_only else written


def describe(found: Sequence[Surveyed], here: Machine) -> Report:
    """Return a table of the hosts that can be used, a line for each other one, and what to know about them.

    Args:
        found: The hosts.
        here: The monitor's own machine.
    """
    usable = [one for one in found if not one.error]
    table = Table([_HEAD, *map(_row, usable)], left=(0, 1, 2, 3, 7)) if usable else None
    lost = []
    for one in found:
        if one.error:
            lost += [
                f"{one.host.name} cannot be used: {_line(one.error)}",
                *([f"  {_line(one.hint)}"] if one.hint else []),
            ]
    notes = [*_notes(usable), *_twins(usable, here)]
    return Report("Hosts", (Section("", (table, Lines(lost))), Section("", (Lines(notes),))))


def _row(one: Surveyed) -> tuple[str, ...]:
    machine, link = one.machine, one.link
    usable = cores(machine.usable_cores) + (f" of {machine.cores}" if machine.usable_cores < machine.cores else "")
    return (
        one.host.name,
        _line(machine.python) or "unknown",
        _line(machine.tensorflow) or "none",
        _gpus(machine),
        usable,
        memory(machine.memory_bytes),
        "n/a" if link is None else milliseconds(link.round_trip_ns / 1e6),
        "n/a" if link is None else f"{offset(link.offset_ns)} ± {milliseconds(link.error_ns / 1e6)}",
    )


def _gpus(machine: Machine) -> str:
    """Name the models, each once, such as "2 × NVIDIA H200"."""
    models = list(dict.fromkeys(machine.gpus))
    counts = [machine.gpus.count(model) for model in models]
    words = [f"{count} × {model}" if count > 1 else model for model, count in zip(models, counts, strict=True)]
    return _line(", ".join(words)) or "none"


def _notes(usable: Sequence[Surveyed]) -> Iterator[str]:
    for one in usable:
        if not one.machine.tensorflow:
            yield f"{one.host.name}: {_line(one.python)} has no TensorFlow; {other_python(one.host)}"
        if one.machine.no_gpu:
            yield f"{one.host.name}: no GPU: {_line(one.machine.no_gpu)}"


def _twins(usable: Sequence[Surveyed], here: Machine) -> Iterator[str]:
    """Tell which names mean one machine."""
    by_boot: dict[str, list[str]] = {}
    for one in usable:
        by_boot.setdefault(one.machine.boot, []).append(one.host.name)
    for boot, names in by_boot.items():
        if boot and boot == here.boot:
            yield f"{' and '.join(names)}: this machine; lanes here and there take turns"
        elif boot and len(names) > 1:
            yield f"{' and '.join(names)}: one machine; their lanes take turns"


def _line(text: str) -> str:
    """Return text from elsewhere as one line that cannot steer a terminal."""
    return " ".join(clean(text).split())


def to_json(found: Sequence[Surveyed], here: Machine) -> dict[str, Any]:
    """Return the hosts as plain values."""
    return {**head(), "hosts": [_json(one, here) for one in found]}


def _json(one: Surveyed, here: Machine) -> dict[str, Any]:
    known = {"host": one.host.name, "reachable": not one.error}
    if one.error:
        return {**known, "error": one.error, "hint": one.hint or None}
    machine, link = one.machine, one.link
    return {
        **known,
        "hostname": machine.hostname,
        "system": machine.system,
        "boot": machine.boot or None,
        "is_this_machine": bool(machine.boot) and machine.boot == here.boot,
        "python": machine.python or None,
        "python_path": one.python,
        "tensorflow": machine.tensorflow or None,
        "gpus": list(machine.gpus),
        "no_gpu": machine.no_gpu or None,
        "driver": machine.driver or None,
        "power_limits_w": list(machine.power_limits_w),
        "cpu": machine.cpu_name,
        "cores": machine.cores,
        "usable_cores": machine.usable_cores,
        "quota_cores": machine.quota_cores,
        "nice": machine.nice,
        "memory_bytes": machine.memory_bytes,
        "round_trip_ms": None if link is None else link.round_trip_ns / 1e6,
        "clock_offset_ms": None if link is None else link.offset_ns / 1e6,
        "clock_error_ms": None if link is None else link.error_ns / 1e6,
    }


def nodes_to_text(nodes: Sequence[RayNode], *, ascii_only: bool = False) -> str:
    """Write a table of the nodes."""
    table = Table([_NODE_HEAD, *map(_node, nodes)], left=range(5))
    written = text.write(Report("Nodes of the Ray cluster", (Section("", (table,)),)))
    return text.plain(written) if ascii_only else written


def _node(node: RayNode) -> tuple[str, ...]:
    return (
        _line(node.name if node.name != node.address else node.hostname or node.name),
        _line(node.address),
        _free(node.free_cpus, node.cpus),
        _free(node.free_gpus, node.gpus),
        _line(", ".join(node.kinds)) or ("unknown" if node.gpus else ""),
        memory(node.memory_bytes),
    )


def _free(free: float | None, total: float) -> str:
    if not total:
        return "none"
    return f"{total:g}" if free is None else f"{free:g} of {total:g} free"


def nodes_to_json(nodes: Sequence[RayNode]) -> dict[str, Any]:
    """Return the nodes as plain values."""
    return {**head(), "nodes": [{**asdict(node), "kinds": list(node.kinds)} for node in nodes]}
