"""Events with plausible figures, of which a test names only what matters to it."""

from dataclasses import fields, is_dataclass, replace

from tfmon.model.event_base import Event
from tfmon.model.events import KnobRequested, LaneEnded, LaneStarted
from tfmon.model.gpu_samples import GpuLoad, GpuMemory, GpuPower, GpuSample
from tfmon.model.lane import Lane
from tfmon.model.lane_events import PhaseEntered, Window
from tfmon.model.lane_state import LaneState, copied
from tfmon.model.readings import Missing, TreeSample
from tfmon.model.spec import LaneSpec

MS = 1_000_000
SECOND = 1_000 * MS
START = 1_000 * SECOND
HIDDEN = Missing("hidden")


class Clock:
    """A clock that moves only when a test moves it."""

    now_ns = START

    def __call__(self) -> int:
        return self.now_ns

    def now_s(self) -> float:
        return self.now_ns / SECOND

    def ahead(self, seconds: float) -> None:
        self.now_ns += round(seconds * SECOND)


WINDOW = Window(
    lane="cpu", at_ns=SECOND, span_ns=200 * MS, steps=10, examples=320, step=10, input_ns=20 * MS,
    call_ns=150 * MS, sync_ns=25 * MS, report_ns=5 * MS, longest_ns=30 * MS, histogram={1552: 10}, loss=0.5,
    settings={"prefetch": "auto"},
)  # fmt: skip
"""Ten steps of 20 ms."""
GPU = GpuSample(
    at_ns=1, key="GPU-a", index=0, name="A GPU", load=GpuLoad(60.0, source="samples"),
    memory=GpuMemory(HIDDEN, HIDDEN), power=GpuPower(HIDDEN, HIDDEN), temperature_c=HIDDEN,
)  # fmt: skip
GROUPS = {
    part.name: group.name
    for group in fields(GpuSample)
    if is_dataclass(getattr(GPU, group.name)) and not isinstance(getattr(GPU, group.name), Missing)
    for part in fields(getattr(GPU, group.name))
}
"""The group of each reading of a GPU."""


def window(at_ns: int = SECOND, span_ns: int = 200 * MS, **changes) -> Window:
    return replace(WINDOW, at_ns=at_ns, span_ns=span_ns, **changes)


def gpu_sample(key: str = "GPU-a", index: int = 0, **changes) -> GpuSample:
    return reread(replace(GPU, key=key, index=index), **changes)


def reread(sample: GpuSample, **changes) -> GpuSample:
    """Return the sample with other readings, each by its name in its group, and other fields."""
    for name, value in changes.items():
        group = GROUPS.get(name)
        part = {name: value} if group is None else {group: replace(getattr(sample, group), **{name: value})}
        sample = replace(sample, **part)
    return sample


def tree_sample(cpu_pct=200.0, pids: tuple[int, ...] = (7, 8), lane: str = "cpu") -> TreeSample:
    return TreeSample(lane=lane, at_ns=1, cpu_pct=cpu_pct, private_bytes=1e6, processes=len(pids), pids=pids)


def phase(name: str, at_ns: int = 1, lane: str = "cpu") -> PhaseEntered:
    return PhaseEntered(lane=lane, at_ns=at_ns, phase=name)


def requested(request: int, value="off", knob: str = "prefetch") -> KnobRequested:
    return KnobRequested(lane="cpu", at_ns=3, request=request, knob=knob, value=value)


def ended(code: int | None = None, signal: str | None = None, *, requested=False, kills="") -> LaneEnded:
    return LaneEnded(
        lane="cpu", at_ns=40 * SECOND, exit_code=code, signal=signal, requested=requested, memory_kills=kills,
        output_tail=("last words",),
    )  # fmt: skip


def started(at_ns: int = 50, **more) -> LaneStarted:
    return LaneStarted(lane="cpu", at_ns=at_ns, pid=43, settings={"prefetch": 2}, **more)


def lane(device: str = "cpu", *events) -> LaneState:
    return advance(LaneState(spec=LaneSpec(device, name=device)), *events)


def advance(state: LaneState, *events: Event) -> LaneState:
    """Return the state after more events; the given one stays as it is."""
    result = copied(state, Lane)
    for event in events:
        result.accept(event)
    return copied(result, LaneState)
