"""The nodes of a Ray cluster: a table for people, and one JSON object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tfmon.hosts.ray_cluster import RayNode
from tfmon.model.codec import clean
from tfmon.reports import head, table
from tfmon.units import memory

_HEAD = ("node", "address", "CPUs", "GPUs", "kind", "memory")
_RIGHT = (5,)


def to_text(nodes: Sequence[RayNode], *, ascii_only: bool = False) -> str:
    """Write a table of the nodes."""
    text = "\n".join(table([_HEAD, *(_row(node) for node in nodes)], _RIGHT))
    return text.encode("ascii", "replace").decode() if ascii_only else text


def _row(node: RayNode) -> tuple[str, ...]:
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


def _line(text: str) -> str:
    """Return text from elsewhere as one line that cannot steer a terminal."""
    return " ".join(clean(text).split())


def to_json(nodes: Sequence[RayNode]) -> dict[str, Any]:
    """Return the nodes as plain values."""
    return {**head(), "nodes": [{**asdict(node), "kinds": list(node.kinds)} for node in nodes]}
