"""A part of a Ray cluster that lanes are started on: how it is named, and what the bridge is told of it.

`ray/gpu` is a GPU of any node, `ray:H100/gpu` one of that kind, `ray:node7/cpu` is on that node. A number makes
another reservation: `ray:2/gpu`, `ray:H100:2/gpu`. All lanes with one such name are on one node, and share its
devices.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tfmon.errors import UsageError
from tfmon.lanes.remote.ray_nodes import SIGN
from tfmon.model.spec import ALL, LaneSpec
from tfmon.model.surroundings import INHERITED

RAY = "ray"
BRIDGE = Path(__file__).with_name("ray_bridge.py")


def is_ray(host: str) -> bool:
    """Return whether the name of a host means a part of a Ray cluster."""
    return host.partition(":")[0] == RAY


def word_of(host: str) -> str:
    """Return the kind of GPU or the node that a name asks for; empty for any."""
    _, *words = host.split(":")
    return ":".join(word for word in words if word and not word.isdigit())


def gpus_needed(specs: Iterable[LaneSpec]) -> int:
    """Return how many GPUs a reservation needs for its lanes: they number those that it has from 0.

    Raises:
        UsageError: a lane is to have all GPUs, of a node that is not known yet.
    """
    lanes = [spec for spec in specs if spec.kind == "gpu"]
    for spec in lanes:
        if spec.device.endswith(f":{ALL}"):
            raise UsageError(f"{spec.place}: Ray reserves a number of GPUs", f"name it, as in {spec.host}/4xgpu")
    return max((max(max(spec.indexes, default=0) + 1, spec.devices) for spec in lanes), default=0)


@dataclass(frozen=True, slots=True)
class Reservation:
    """What is asked of a Ray cluster."""

    python: str
    """The Python with Ray that runs the bridge."""
    address: str = ""
    """HOST:PORT of the cluster; empty for RAY_ADDRESS, or the one that runs on this machine."""
    word: str = ""
    """A kind of GPU, or a node; empty for any."""
    gpus: int = 0
    cpus: float = 1
    wait_s: float = 30
    """How long it waits for what others use now."""
    node: str = ""
    """Ray's id of the node, once one was given: the lanes stay on it."""
    visible: str | None = None
    """The GPUs of the node that were given, as Ray names them."""
    nice: int | None = None
    """The nice value that the lanes there ought to have, once it is known: that of lanes here."""

    def words(self) -> str:
        """Return the request for the bridge."""
        words = {**asdict(self), "variables": INHERITED}
        for own in ("python", "nice"):
            del words[own]
        return json.dumps(words)

    def command(self, what: str) -> list[str]:
        """Return the command line of the bridge."""
        return [self.python, str(BRIDGE), what, self.words()]

    def placed(self, said: Sequence[str]) -> Reservation:
        """Return the reservation as it is after the bridge has told where it is."""
        found = told(said).get("placed", {})
        if not found:
            return self
        return replace(self, node=found["node"], visible=found["visible"], nice=found["nice"])


def told(said: Sequence[str]) -> Mapping[str, Any]:
    """Return the bridge's last words among the lines of its stderr; empty for none."""
    for line in reversed(said):
        if line.startswith(SIGN + "{"):
            try:
                words = json.loads(line[len(SIGN) :])
            except ValueError:
                continue
            return words if isinstance(words, dict) else {}
    return {}
