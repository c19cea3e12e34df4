"""The work of GPUs during the capture."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tfmon.model.profile import GpuTime
from tfmon.model.readings import Missing, Reading
from tfmon.profile.loop_thread import LoopThread
from tfmon.profile.operations import OpRun, hlo_type, parse
from tfmon.profile.trace import Plane, Space, Stat, Times, TraceEvent, both, total, unite, without

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
COPIES = {"h2d": "copies from the host", "d2h": "copies to the host"}
COMPUTING, REDUCING, FROM_HOST, TO_HOST = range(4)
"""A layer counts while no layer before it runs."""


@dataclass(frozen=True, slots=True)
class GpuTrace:
    """The work of a GPU; the times may overlap."""

    name: str
    kernels: Times
    """All work except copies from or to the host."""
    computing: Times
    """Kernels without all-reduce."""
    h2d: Times
    d2h: Times
    sizes: dict[str, list[tuple[int, int | None]]]
    """Start and bytes of each copy, by direction."""
    runs: tuple[OpRun, ...]
    copying: tuple[OpRun, ...]
    starts: dict[Stat, int]
    """By the number of the launch."""

    @property
    def until_ps(self) -> int:
        """The end of the last work."""
        return max((times[-1][1] for times in (self.kernels, self.h2d, self.d2h) if times), default=0)


def read(space: Space) -> list[GpuTrace]:
    """Return the GPUs with work."""
    planes = [plane for plane in space.planes if plane.name.startswith(_PLANE)]
    result = [_read(plane) for plane in planes]
    return [gpu for gpu in result if gpu.kernels or gpu.h2d or gpu.d2h]


def busy(gpu: GpuTrace, loop: LoopThread) -> GpuTime:
    """Return a GPU's work per step."""
    per_step, window = loop.per_step, loop.window
    kernels, h2d, d2h = (both(times, window) for times in (gpu.kernels, gpu.h2d, gpu.d2h))
    reducing = without(kernels, gpu.computing)
    h2d_exposed = without(h2d, kernels)
    d2h_exposed = without(without(d2h, kernels), h2d)
    idle = without(without(without(window, kernels), h2d), d2h)
    tracing = unite([*loop.traced, *loop.compiled])
    idle_tracing = both(idle, tracing)
    idle_launch = both(without(idle, tracing), loop.calls)
    idle_input = both(idle, loop.input)
    parts = (idle_tracing, idle_launch, idle_input)
    return GpuTime(
        name=gpu.name,
        kernels_ns=per_step(kernels),
        all_reduce_ns=per_step(reducing),
        h2d_ns=per_step(h2d),
        d2h_ns=per_step(d2h),
        h2d_exposed_ns=per_step(h2d_exposed),
        d2h_exposed_ns=per_step(d2h_exposed),
        h2d_bytes=_bytes(gpu.sizes["h2d"], loop),
        d2h_bytes=_bytes(gpu.sizes["d2h"], loop),
        idle_ns=per_step(idle),
        idle_input_ns=per_step(idle_input),
        idle_launch_ns=per_step(idle_launch),
        idle_tracing_ns=per_step(idle_tracing),
        idle_other_ns=(total(idle) - sum(total(part) for part in parts)) / 1000 / len(loop.steps),
    )


def _bytes(copies: list[tuple[int, int | None]], loop: LoopThread) -> Reading:
    began, ended = loop.window[0]
    sizes = [size for start_ps, size in copies if began <= start_ps < ended]
    known = [size for size in sizes if size is not None]
    return sum(known) / len(loop.steps) if known == sizes else Missing("the trace does not show sizes")


def _read(plane: Plane) -> GpuTrace:
    sizes: dict[str, list[tuple[int, int | None]]] = {"h2d": [], "d2h": []}
    name = plane.name.removeprefix("/device:")
    runs: list[OpRun] = []
    copying: list[OpRun] = []
    starts: dict[Stat, int] = {}
    for queue, event in _work(plane):
        span = (event.start_ps, event.end_ps)
        way, length_ps = _way(event), event.end_ps - event.start_ps
        if _LAUNCH in event.stats:
            starts[event.stats[_LAUNCH]] = event.start_ps
        if way:
            layer = FROM_HOST if way == "h2d" else TO_HOST
            copying.append(OpRun(COPIES[way], "", name, *span, length_ps, queue, layer))
            size = _SIZE.search(str(event.stats.get(_DETAILS, "")))
            sizes[way].append((event.start_ps, int(size[1]) if size else None))
        else:
            title = _title(event)
            layer = REDUCING if _ALL_REDUCE.search(f"{event.name} {title[1]}") else COMPUTING
            runs.append(OpRun(*title, name, *span, length_ps, queue, layer))

    def times(*layers: int) -> Times:
        return unite((run.start_ps, run.end_ps) for run in (*runs, *copying) if run.layer in layers)

    kernels, computing = times(COMPUTING, REDUCING), times(COMPUTING)
    return GpuTrace(
        name, kernels, computing, times(FROM_HOST), times(TO_HOST), sizes, tuple(runs), tuple(copying), starts
    )


def pending(space: Space, gpus: Iterable[GpuTrace]) -> Times:
    """Return the time between launches and their work, if known."""
    starts = {launch: start for gpu in gpus for launch, start in gpu.starts.items()}
    lines = [line for plane in space.planes if plane.name.startswith(_HOST) and starts for line in plane.lines]
    launched = [event for line in lines for event in line.events if event.stats.get(_LAUNCH) in starts]
    return unite((event.end_ps, starts[event.stats[_LAUNCH]]) for event in launched)


def _work(plane: Plane) -> Iterator[tuple[str, TraceEvent]]:
    for line in plane.lines:
        if line.name.startswith(_QUEUE):
            for event in line.events:
                yield f"{plane.name} {line.name}", event


def _way(event: TraceEvent) -> str:
    if not event.name.lower().startswith("memcpy"):
        return ""
    match = _KIND.search(str(event.stats.get(_DETAILS, "")))
    kinds = {event.name[len("Memcpy") :].strip().upper(), match[1].upper() if match else ""}
    return "h2d" if kinds & set(_TO_DEVICE) else "d2h" if kinds & set(_TO_HOST) else ""


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
