"""Readings of the GPU of Apple Silicon, without root, from the kernel's registry of devices (`ioreg`)."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tfmon.model.events import Event
from tfmon.model.readings import GpuFault, Missing, Reading
from tfmon.probes.base import Gpu, absent_gpu
from tfmon.probes.machine import memory_bytes

EVERY_S, SELDOM_S = 2.0, 5.0
"""Seconds between samples: the driver updates about once a second, and a slow `ioreg` is run less often."""
SLOW_NS = 50_000_000
TIMEOUT_S = 3.0
IOREG = "ioreg"
NEEDS_ROOT = "macOS reports it to root only"
NO_PROCESSES = "tfmon does not read the processes of Apple GPUs"
NO_GPU = Missing("ioreg lists no GPU")
_KEPT_FAULTS = 8
_DEVICE = "IOAccelerator"

Node = Mapping[str, Any]


class AppleProbe:
    """Samples the GPU of an Apple Silicon machine.

    Thread: the ticker's only; a call of `ioreg` may take 3 s.
    Source: `ioreg -c IOAccelerator` (PerformanceStatistics).
    """

    name = "apple"

    def __init__(self, gpu: Gpu, *, program: str = "", clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        """Sample this GPU by `program`, by default the `ioreg` of the system."""
        self._gpu = gpu
        self._program = program or shutil.which(IOREG) or f"/usr/sbin/{IOREG}"
        self._clock_ns = clock_ns
        self._every_s = EVERY_S
        self._due_ns = 0
        self._resets: Reading = NO_GPU
        self._faults: tuple[GpuFault, ...] = ()

    def sample(self) -> Iterable[Event]:
        """Take a sample every 2 s, or every 5 s if it takes longer than 50 ms; between them return nothing.

        Units: `busy_pct` as the driver's own average over about a second; memory in bytes, now.
        """
        begun_ns = self._clock_ns()
        if begun_ns < self._due_ns:
            return
        device = self._device()
        took_ns = self._clock_ns() - begun_ns
        self._every_s = SELDOM_S if took_ns > SLOW_NS else EVERY_S
        # A tick that comes a little early must not delay the sample by a whole tick.
        self._due_ns = begun_ns + int(self._every_s * 1e9) - 500_000_000
        if isinstance(device, Missing):
            yield replace(absent_gpu(self._gpu, begun_ns, device.reason), every_s=self._every_s)
            return
        statistics: Node = device["PerformanceStatistics"]
        self._note_resets(_number(statistics, "recoveryCount"), begun_ns)
        busy = _number(statistics, "Device Utilization %", "GPU Activity(%)")
        yield replace(
            absent_gpu(self._gpu, begun_ns, NEEDS_ROOT, faults=self._faults),
            name=_name(device) or self._gpu.name,
            every_s=self._every_s,
            busy_pct=busy if isinstance(busy, Missing) else min(100.0, max(0.0, busy)),
            busy_source="" if isinstance(busy, Missing) else "ioreg",
            # "Alloc system memory" is address space, and may exceed the memory of the machine.
            used_bytes=_number(statistics, "In use system memory"),
            total_bytes=float(memory_bytes()),
            unified=True,
            busy_by_pid=Missing(NO_PROCESSES),
            no_processes_reason=NO_PROCESSES,
        )

    def missing(self, reason: str) -> Iterable[Event]:
        """Return every reading as missing for that reason."""
        return [absent_gpu(self._gpu, self._clock_ns(), reason)]

    def close(self) -> None:
        """Release nothing: no driver is open."""

    def _device(self) -> Node | Missing:
        nodes = self._ioreg()
        if isinstance(nodes, Missing):
            return nodes
        return next((node for node in nodes if isinstance(node.get("PerformanceStatistics"), dict)), NO_GPU)

    def _ioreg(self) -> list[Node] | Missing:
        """Return the registry's entries of GPUs; `ioreg` prints nothing if there are none."""
        environment = {key: value for key, value in os.environ.items() if key != "DYLD_INSERT_LIBRARIES"}
        try:
            answer = subprocess.run(
                [self._program, "-a", "-r", "-d", "1", "-w", "0", "-c", _DEVICE],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TIMEOUT_S,
                check=False,
                env=environment,
            )
        except subprocess.TimeoutExpired:
            return Missing("ioreg does not answer")
        except OSError as error:
            return Missing(f"ioreg could not be run: {error.strerror}")
        if not answer.stdout.strip():
            return []
        try:
            import plistlib

            nodes = plistlib.loads(answer.stdout)
        except Exception as error:  # noqa: BLE001 - the XML reader has errors of its own
            return Missing(f"ioreg's answer cannot be read: {type(error).__name__}")
        return [node for node in nodes if isinstance(node, dict)] if isinstance(nodes, list) else []

    def _note_resets(self, now: Reading, at_ns: int) -> None:
        before, self._resets = self._resets, now
        if not isinstance(before, Missing) and not isinstance(now, Missing) and now > before:
            fault = GpuFault(at_ns, None, "the GPU hung and was reset by the system")
            self._faults = (*self._faults[-(_KEPT_FAULTS - 1) :], fault)


def _name(device: Node) -> str:
    model = device.get("model", "")
    return model.decode("utf-8", "replace").rstrip("\0") if isinstance(model, bytes) else str(model)


def _number(values: Node, *keys: str) -> Reading:
    for key in keys:
        value = values.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return Missing("not reported by this macOS")
