"""A Ray cluster, as the monitor sees it: the bridge asks it what it has."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tfmon.errors import UsageError
from tfmon.lanes.remote.host import Host
from tfmon.lanes.remote.ray_nodes import Refusal, matching
from tfmon.lanes.remote.reservation import Reservation, gpus_needed, word_of
from tfmon.lanes.remote.trouble import HostError, bridge_failed, no_bridge
from tfmon.lanes.remote.wire import KEPT_BYTES
from tfmon.model.codec import CodecError, read
from tfmon.model.spec import SpecError, parse_lane

ASK_S = 40.0


@dataclass(frozen=True, slots=True)
class RayNode:
    """A node of a cluster."""

    id: str
    name: str
    address: str
    hostname: str = ""
    kinds: tuple[str, ...] = ()
    """The kinds of its GPUs, as Ray calls them, such as H100."""
    cpus: float = 0
    gpus: float = 0
    memory_bytes: int = 0
    free_cpus: float | None = None
    """What is not reserved; None where Ray does not say it."""
    free_gpus: float | None = None


@dataclass(frozen=True, slots=True)
class RayCluster:
    """One cluster. Thread: any; what asks the cluster takes seconds."""

    address: str = ""
    """HOST:PORT; empty for RAY_ADDRESS, or else the one that runs on this machine."""
    python: str = sys.executable
    """The Python with Ray that runs the bridge."""
    cpus: float = 1
    """How many CPUs each reservation takes."""

    def host(self, name: str, gpus: int = 0, python: str = "") -> Host:
        """Return how a part of the cluster is reached; see `reservation` for its name."""
        return Host(name, python=python, ray=self._reservation(word_of(name), gpus))

    def nodes(self) -> tuple[RayNode, ...]:
        """Return the nodes that are alive.

        Raises:
            HostError: The cluster cannot be used.
        """
        try:
            done = subprocess.run(
                self._reservation("", 0).command("nodes"),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=ASK_S,
                start_new_session=True,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise HostError(f"the Ray cluster did not answer within {ASK_S:.0f} s") from None
        except OSError as error:
            raise no_bridge(self.python, error) from error
        if done.returncode:
            said = done.stderr[-KEPT_BYTES:].decode(errors="replace").splitlines()
            raise bridge_failed(said, f"it ended with exit code {done.returncode}")
        try:
            found: tuple[RayNode, ...] = read(json.loads(done.stdout), tuple[RayNode, ...], strict=False)
        except (ValueError, CodecError) as error:
            raise HostError(f"the bridge to Ray said what cannot be read: {error}") from error
        return found

    def workers(self, place: str) -> int:
        """Return for how many reservations such as `ray/gpu` or `ray:H100/gpu` there is room now.

        On the CPU there is room for one a node: its lanes use all cores.

        Raises:
            UsageError: There can be no such place.
            HostError: The cluster cannot be used, or no node ever has room.
        """
        try:
            spec = parse_lane(place, ())
        except SpecError as error:
            raise UsageError(str(error)) from error
        asked = self._reservation(word_of(spec.host), gpus_needed([spec]))
        try:
            nodes = matching([asdict(node) for node in self.nodes()], asdict(asked))
        except Refusal as refusal:
            raise HostError(refusal.error, refusal.hint) from refusal
        rooms = [_room(node, asked) for node in nodes]
        return sum(rooms if asked.gpus else [min(room, 1) for room in rooms])

    def _reservation(self, word: str, gpus: int) -> Reservation:
        return Reservation(self.python, self.address, word, gpus, self.cpus)


def _room(node: Mapping[str, Any], asked: Reservation) -> int:
    """Return how many reservations a node has room for; what it has counts where Ray does not say what is free."""
    rooms = []
    for key, amount in (("gpus", asked.gpus), ("cpus", asked.cpus)):
        if amount:
            free = node["free_" + key]
            rooms.append(int((node[key] if free is None else free) / amount))
    return min(rooms, default=1)
