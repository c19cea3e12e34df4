"""The work of GPUs during the capture."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.profile import GpuTime
from tfmon.model.readings import Missing, Reading
from tfmon.profile.loop_thread import LoopThread
from tfmon.profile.operations import OpRun, hlo_type, parse
from tfmon.profile.trace import Plane, Space, Stat, Times, TraceEvent

_PLANE = "/device:GPU:"
_QUEUE = "Stream"
"""Other lines, such as steps and modules, are derived from these."""
_KIND = re.compile(r"\bkind:(\w+)")
_SIZE = re.compile(r"\b(?:size|num_bytes):(\d{1,18})")
_ALL_REDUCE = re.compile(r"nccl|CollectiveReduce|AllReduce", re.IGNORECASE)
_TO_DEVICE, _TO_HOST = ("H2D", "HTOD"), ("D2H", "DTOH")
_DETAILS = "memcpy_details"
_LAUNCH = "correlation_id"
_PATH, _GRAPH = "name", "cuda_graph_id"
"""Path and CUDA graph of kernels that XLA compiled. Source: traces of JAX 0.11 on an H100."""
_HOST = "/host:"
COMPUTING, REDUCING, FROM_HOST, TO_HOST = range(4)
"""A layer counts while no layer before it runs."""
COPIES = {FROM_HOST: "copies from the host", TO_HOST: "copies to the host"}


@dataclass(frozen=True, slots=True)
class GpuTrace:
    """The work of a GPU."""

    name: str
    runs: tuple[OpRun, ...]
    """Kernels, and copies from and to the host."""
    starts: dict[Stat, int]
    """By the number of the launch."""

    @property
    def kernels(self) -> list[OpRun]:
        """All work except copies from or to the host."""
        return [run for run in self.runs if run.layer in (COMPUTING, REDUCING)]

    def times(self, *layers: int) -> Times:
        """Return when work of these layers ran."""
        return Times(run.span for run in self.runs if run.layer in layers)


def read(space: Space) -> list[GpuTrace]:
    """Return the GPUs with work."""
    gpus = [_read(plane) for plane in space.planes if plane.name.startswith(_PLANE)]
    return [gpu for gpu in gpus if gpu.runs]


def busy(gpu: GpuTrace, loop: LoopThread) -> GpuTime:
    """Return a GPU's work per step."""
    per_step, window = loop.per_step, loop.window
    kernels = gpu.times(COMPUTING, REDUCING) & window
    h2d, d2h = gpu.times(FROM_HOST) & window, gpu.times(TO_HOST) & window
    idle = window - kernels - h2d - d2h
    idle_tracing = idle & Times([*loop.traced, *loop.compiled])
    idle_launch = (idle - idle_tracing) & loop.calls
    idle_input = idle & loop.input
    named_ps = idle_tracing.total + idle_launch.total + idle_input.total
    return GpuTime(
        name=gpu.name,
        kernels_ns=per_step(kernels),
        all_reduce_ns=per_step(kernels - gpu.times(COMPUTING)),
        h2d_ns=per_step(h2d),
        d2h_ns=per_step(d2h),
        h2d_exposed_ns=per_step(h2d - kernels),
        d2h_exposed_ns=per_step(d2h - kernels - h2d),
        h2d_bytes=_bytes(gpu, FROM_HOST, loop),
        d2h_bytes=_bytes(gpu, TO_HOST, loop),
        idle_ns=per_step(idle),
        idle_input_ns=per_step(idle_input),
        idle_launch_ns=per_step(idle_launch),
        idle_tracing_ns=per_step(idle_tracing),
        idle_other_ns=(idle.total - named_ps) / 1000 / len(loop.steps),
    )


def _bytes(gpu: GpuTrace, layer: int, loop: LoopThread) -> Reading:
    began, ended = loop.window[0]
    sizes = [run.bytes for run in gpu.runs if run.layer == layer and began <= run.start_ps < ended]
    known = [size for size in sizes if size is not None]
    return sum(known) / len(loop.steps) if known == sizes else Missing("the trace does not show sizes")


def _read(plane: Plane) -> GpuTrace:
    name = plane.name.removeprefix("/device:")
    runs: list[OpRun] = []
    starts: dict[Stat, int] = {}
    for queue, event in _work(plane):
        layer, length_ps = _copies(event), event.end_ps - event.start_ps
        if _LAUNCH in event.stats:
            starts[event.stats[_LAUNCH]] = event.start_ps
        if layer is not None:
            size = _SIZE.search(str(event.stats.get(_DETAILS, "")))
            size_bytes = int(size[1]) if size else None
            runs.append(OpRun(COPIES[layer], "", name, *event.span, length_ps, queue, layer, size_bytes))
        else:
            title = _title(event)
            layer = REDUCING if _ALL_REDUCE.search(f"{event.name} {title[1]}") else COMPUTING
            runs.append(OpRun(*title, name, *event.span, length_ps, queue, layer))
    return GpuTrace(name, tuple(runs), starts)


def pending(space: Space, gpus: Iterable[GpuTrace]) -> Times:
    """Return the time between launches and their work, if known."""
    starts = {launch: start for gpu in gpus for launch, start in gpu.starts.items()}
    lines = [line for plane in space.planes if plane.name.startswith(_HOST) and starts for line in plane.lines]
    launched = [event for line in lines for event in line.events if event.stats.get(_LAUNCH) in starts]
    return Times((event.end_ps, starts[event.stats[_LAUNCH]]) for event in launched)


def _work(plane: Plane) -> Iterator[tuple[str, TraceEvent]]:
    for line in plane.lines:
        if line.name.startswith(_QUEUE):
            for event in line.events:
                yield f"{plane.name} {line.name}", event


def _copies(event: TraceEvent) -> int | None:
    """Return the layer of a copy from or to the host."""
    if not event.name.lower().startswith("memcpy"):
        return None
    match = _KIND.search(str(event.stats.get(_DETAILS, "")))
    kinds = {event.name[len("Memcpy") :].strip().upper(), match[1].upper() if match else ""}
    return FROM_HOST if kinds & set(_TO_DEVICE) else TO_HOST if kinds & set(_TO_HOST) else None


def _title(event: TraceEvent) -> tuple[str, str]:
    """Return name and type of a kernel's operation, or the kernel's name twice.

    XLA has the path in the model. All kernels of a CUDA graph have its name.
    """
    operation = parse(str(event.stats.get("tf_op", "")))
    if operation is not None:
        return operation
    path, hlo = str(event.stats.get(_PATH, "")), str(event.stats.get("hlo_op", ""))
    if "/" in path:
        return path, path.rpartition("/")[2]
    return (hlo, hlo_type(hlo)) if hlo and _GRAPH not in event.stats else (event.name, event.name)
