"""Lanes with sums that are known, as their windows would have added up to."""

from support.events import MS
from tfmon.model.knobs import COMMON, Knob
from tfmon.model.lane_events import RACING
from tfmon.model.lane_state import LaneState, ProcessInfo, StepFacts
from tfmon.model.spec import LaneSpec
from tfmon.model.windows import Measurements, WindowSums

KNOBS = (*COMMON, Knob("variant", "slow", "", choices=("slow", "fast")))
SETTINGS = {
    "batch_size": 32, "prefetch": "off", "parallel_calls": "off", "cache": False, "graph": True, "xla": False,
}  # fmt: skip


def measured_lane(
    device: str = "cpu", computing: float | None = None, settings=None, traced: str = "", **sums
) -> LaneState:
    """Make a lane that did 1,000 steps of 1 ms, of which the given sums, in ms, are known."""
    counts = {name: sums.pop(name) for name in ("steps", "traced_steps", "sampled") if name in sums}
    times = {name: None if value is None else round(value * MS) for name, value in sums.items()}
    tally = WindowSums(windows=5, **{"steps": 1_000, "examples": 32_000, "span_ns": 1_000 * MS, **counts, **times})
    return LaneState(
        spec=LaneSpec(device, name=device),
        phase=RACING,
        settings={**SETTINGS, **(settings or {})},
        process=ProcessInfo(data_examples=1_000),
        step=StepFacts(computing_share=computing, traced=traced),
        measurements=Measurements(steady=tally),
    )
