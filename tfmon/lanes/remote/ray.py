"""Questions to a Ray cluster, answered by the bridge."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

from tfmon.errors import UsageError
from tfmon.lanes.remote.remote_host import Host, Reservation, word_of
from tfmon.lanes.remote.start_program import KEPT_BYTES
from tfmon.lanes.remote.trouble import HostError, bridge_error, how_ended, last_line, no_launcher
from tfmon.model.codec import CodecError, read
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.spec import ALL, LaneSpec, SpecError, parse_lane
from tfmon.system.programs import run_program

ASK_S = 40.0


@dataclass(frozen=True, slots=True)
class RayNode:
    """A node of a cluster."""

    id: str
    name: str
    address: str
    hostname: str = ""
    kinds: tuple[str, ...] = ()
    cpus: float = 0
    gpus: float = 0
    memory_bytes: int = 0
    free_cpus: float | None = None
    free_gpus: float | None = None


@dataclass(frozen=True, slots=True)
class RayCluster:
    """One cluster. Thread: any; questions take seconds."""

    address: str = ""
    python: str = sys.executable
    cpus: float = 1

    def host(self, name: str, gpus: int = 0, python: str = "") -> Host:
        """Return a part of the cluster; see `Reservation`."""
        return Host(name, python=python, ray=self._reservation(word_of(name), gpus))

    def nodes(self) -> tuple[RayNode, ...]:
        """Return the living nodes; raises HostError."""
        try:
            result: tuple[RayNode, ...] = read(
                self._ask("nodes", self._reservation("", 0)), tuple[RayNode, ...], strict=False
            )
        except CodecError as error:
            raise HostError(f"the bridge to Ray sent an unreadable message: {error}") from error
        return result

    def workers(self, lane: str) -> int:
        """Return how many such lanes fit now; raises TfmonError."""
        try:
            spec = parse_lane(lane, ())
        except SpecError as error:
            raise UsageError(str(error)) from error
        reservation = self._reservation(word_of(spec.host), gpus_needed([spec]))
        return int(self._ask("rooms", reservation))

    def _reservation(self, word: str, gpus: int) -> Reservation:
        return Reservation(self.python, self.address, word, gpus, self.cpus)

    def _ask(self, question: str, reservation: Reservation) -> Any:
        try:
            done = run_program(reservation.command(question), ASK_S)
        except subprocess.TimeoutExpired:
            raise HostError(f"the Ray cluster did not answer within {ASK_S:.0f} s") from None
        except OSError as error:
            raise no_launcher(Host("ray", ray=reservation), self.python, error) from error
        if done.returncode:
            error_lines = done.stderr[-KEPT_BYTES:].splitlines()
            why = last_line(error_lines) or f"it {how_ended(done.returncode)}"
            raise bridge_error(error_lines) or HostError(f"the bridge to Ray failed: {why}")
        try:
            return json.loads(done.stdout)
        except ValueError as error:
            raise HostError(f"the bridge to Ray sent an unreadable message: {error}") from error


def gpus_needed(specs: Iterable[LaneSpec]) -> int:
    """Return how many GPUs the lanes need; raises UsageError for gpu:all."""
    lanes = [spec for spec in specs if spec.kind == "gpu"]
    for spec in lanes:
        if spec.device.endswith(f":{ALL}"):
            raise UsageError(f"{spec.place}: Ray reserves a number of GPUs", f"name it, as in {spec.host}/4xgpu")
    return max((max(max(spec.indexes, default=0) + 1, spec.devices) for spec in lanes), default=0)
