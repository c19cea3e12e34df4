"""Figures of a race as OpenMetrics, without unknown readings."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from tfmon.analysis.analysis import Analysis, analyse
from tfmon.analysis.health import concerns
from tfmon.errors import UsageError
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import Missing, Reading
from tfmon.model.session import Snapshot
from tfmon.system.threads import start_thread

if TYPE_CHECKING:
    from prometheus_client.core import Metric

EVERY_S = 5.0
METRICS = ("metrics",)
NEEDS = "pip install prometheus_client, or tfmon[metrics]"
RATIO = "Throughput relative to the slowest lane, with the 95 % interval"
Values: TypeAlias = dict[tuple[str, ...], "Reading | None"]
LANE = ("lane", "title")
GPU = ("host", "gpu", "uuid", "name")

OF_A_LANE: dict[str, tuple[str, Callable[[LaneState], Reading | None]]] = {
    "steps": ("Steps done", lambda lane: lane.totals.steps),
    "examples": ("Examples trained on", lambda lane: lane.totals.examples or None),
    "examples_per_second": ("Examples a second, lately", lambda lane: lane.recent().examples_per_s),
    "steps_per_second": ("Steps a second, lately", lambda lane: lane.recent().steps_per_s),
    "loss": ("The loss that was read last", lambda lane: lane.totals.losses.last),
    "memory_bytes": ("Memory that its processes share with no other", lambda lane: lane.tree.private_bytes),
    "cpu_cores": ("CPU that its processes use, in cores", lambda lane: _part(lane.tree.cpu_pct)),
    "gpu_memory_bytes": ("GPU memory that it uses", lambda lane: lane.gpu_use.used_bytes),
}
COUNTERS = ("lane_steps", "lane_examples")
OF_A_GPU: dict[str, tuple[str, Callable[[GpuSample], Reading]]] = {
    "busy_ratio": ("Share of the time in which it is busy", lambda gpu: _part(gpu.load.busy_pct)),
    "memory_used_bytes": ("Memory that all its processes use", lambda gpu: gpu.memory.used_bytes),
    "memory_total_bytes": ("Memory that it has", lambda gpu: gpu.memory.total_bytes),
    "power_watts": ("Power that it draws", lambda gpu: gpu.power.power_w),
    "temperature_celsius": ("Its temperature", lambda gpu: gpu.temperature_c),
}


def _part(percent: Reading) -> Reading:
    return percent if isinstance(percent, Missing) else percent / 100


class RaceCollector:
    """Provides Prometheus' client with the state."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._analysis: Analysis | None = None

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        self._analysis = analyse(self._snapshot(), self._analysis)
        for name, text, labels, values in figures(self._analysis):
            kind: Any = CounterMetricFamily if name in COUNTERS else GaugeMetricFamily
            family = kind(f"tfmon_{name}", text, labels=labels)
            for label, value in values.items():
                if value is not None and not isinstance(value, Missing):
                    family.add_metric(label, value)
            yield family


def figures(analysis: Analysis) -> Iterator[tuple[str, str, tuple[str, ...], Values]]:
    """Yield the name, text, labels and values of each metric."""
    snapshot = analysis.snapshot
    lanes = {(lane.spec.name, lane.title): lane for lane in snapshot.lanes}
    for name, (text, of_lane) in OF_A_LANE.items():
        yield f"lane_{name}", text, LANE, {label: of_lane(lane) for label, lane in lanes.items()}
    times, phases, wrong, ratios, gpus = Values(), Values(), Values(), Values(), dict[tuple[str, ...], GpuSample]()
    for (lane_name, title), lane in lanes.items():
        phases[lane_name, title, lane.phase] = 1
        for percent in (50, 95, 99):
            ms = lane.steady.step_ms(percent / 100)
            times[lane_name, title, f"{percent}"] = None if ms is None else ms / 1e3
        faults = [] if lane.over else [concern.id for concern in concerns(snapshot, lane) if concern.is_fault]
        wrong.update({(lane_name, title, fault): 1 for fault in faults})
    names = {lane.spec.id: lane.spec.name for lane in snapshot.lanes}
    for rank in analysis.verdict.ranking:
        for end in ("value", "low", "high"):
            ratios[names[rank.id], rank.lane, end] = getattr(rank.ratio, end)
    yield "lane_step_seconds", "Step time in the steady state", (*LANE, "percentile"), times
    yield "lane_phase", "1 for the phase that it is in", (*LANE, "phase"), phases
    yield "lane_concern", "1 for each problem of the lane", (*LANE, "concern"), wrong
    yield "lane_ratio", RATIO, (*LANE, "end"), ratios
    for host, state in snapshot.hosts.items():
        gpus.update({(host, str(gpu.index), gpu.key, gpu.name): gpu for gpu in state.gpus})
    for name, (text, of_gpu) in OF_A_GPU.items():
        yield f"gpu_{name}", text, GPU, {label: of_gpu(gpu) for label, gpu in gpus.items()}


def give_metrics(where: str, snapshot: Callable[[], Snapshot]) -> Callable[[], None]:
    """Serve the metrics on `PORT` or `ADDRESS:PORT`, or write a file; return the function that ends this.

    Raises: UsageError.
    """
    try:
        from prometheus_client import CollectorRegistry, start_http_server, write_to_textfile
    except ImportError:
        text = "--metrics needs prometheus_client, which is not installed"
        raise UsageError(text, NEEDS, options=METRICS) from None
    registry: Any = CollectorRegistry()
    registry.register(RaceCollector(snapshot))
    address, _, port = where.rpartition(":")
    closed = threading.Event()

    def keep() -> None:
        over = False
        while not over:
            over = closed.wait(EVERY_S)
            with contextlib.suppress(OSError):
                write_to_textfile(where, registry)

    try:
        if port.isdecimal():
            server, _ = start_http_server(int(port), address or "127.0.0.1", registry)
            return server.shutdown
        write_to_textfile(where, registry)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        hint = "name a free port, or the path of a file"
        raise UsageError(f"--metrics {where}: {reason}", hint, options=METRICS) from None
    thread = start_thread("tfmon-metrics", keep, lambda _reason: None)

    def end() -> None:
        closed.set()
        thread.join(EVERY_S)

    return end
