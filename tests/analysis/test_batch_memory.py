"""Which batch sizes fit is predicted from peaks at two sizes, with a range that holds, and is never made up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.events import SECOND, gpu_sample, phase, tree_sample, window

from tfmon.analysis.analysis import analyse
from tfmon.analysis.batch_memory import BatchMemory, batch_memory
from tfmon.analysis.causes import causes_of, setting_text
from tfmon.model.events import LaneStarted
from tfmon.model.knobs import Knob
from tfmon.model.lane_events import KnobApplied
from tfmon.model.lane_state import RACING, LaneState
from tfmon.model.race import Machine, Race
from tfmon.model.readings import Missing
from tfmon.model.session import Session
from tfmon.model.spec import LaneSpec, name_lanes
from tfmon.reports.race_json import to_json
from tfmon.ui.screens.lane import lane_rows
from tfmon.ui.source import effect

MIB, GIB = 2**20, 2**30
CONTEXT = 500 * MIB
"""What the driver counts for the lane, and TensorFlow's allocator does not."""
BATCH = Knob("batch_size", 64, "", "live", low=1)


class OneLane:
    """A race of one lane, which needs `fixed` bytes and `each` for an example."""

    def __init__(self, device: str = "gpu:0", fixed: int = 400 * MIB, each: int = 10 * MIB) -> None:
        self.session, self.peak, self.at_ns, self.device = Session(Machine(), lambda: 0), 0, 1, device
        self.fixed, self.each, self.settings = fixed, each, {"batch_size": 64, "xla": False}
        self.session.begin(Race(), name_lanes([LaneSpec(device)]))
        self.session.accept(LaneStarted(lane=device, at_ns=1, pid=7, settings=dict(self.settings)))
        self.session.accept(tree_sample(pids=(7,), lane=device))
        self.session.accept(phase(RACING, lane=device))

    def trains(self, knob: str = "batch_size", value: object = 64, *, marks: tuple[str, ...] = ()) -> LaneState:
        """Set a knob, train some windows, and sample the GPU: 10 GiB, of which others have 200 MiB."""
        self.at_ns += SECOND
        if self.settings[knob] != value:
            self.settings[knob] = value
            self.session.accept(
                KnobApplied(
                    lane=self.device, at_ns=self.at_ns, request=1, knob=knob, value=value, step=1, gap_ns=1
                )
            )
        self.peak = max(self.peak, self.fixed + self.each * self.settings["batch_size"])
        self.session.accept(
            window(
                lane=self.device, at_ns=self.at_ns + SECOND, settings=dict(self.settings), marks=marks,
                gpu_memory_allocated_bytes=self.fixed, gpu_memory_peak_bytes=self.peak,
            )
        )  # fmt: skip
        used = self.peak + CONTEXT
        self.session.accept(
            gpu_sample(total_bytes=10.0 * GIB, used_bytes=used + 200.0 * MIB, used_by_pid={7: used})
        )
        return self.lane

    @property
    def lane(self) -> LaneState:
        return self.session.snapshot().lanes[0]


def test_the_largest_batch_that_fits_is_told_from_two_sizes_before_the_key_is_pressed():
    race = OneLane()
    assert isinstance(batch_memory(race.trains()), Missing), "one size tells nothing"
    memory = batch_memory(race.trains(value=128))
    assert memory.measured == ((64, 1_040 * MIB), (128, 1_680 * MIB))
    assert memory.needs(512) == (5_520 * MIB, 4 * 1_680 * MIB)
    assert (memory.fits(512), memory.fits(1_024)) == (True, False)
    assert memory.sizes == (512, 1_024)
    said = (
        "batch 512 fits (about 5.4 GiB to 6.6 GiB of 9.8 GiB), 1024 does not (about 10 GiB to 13 GiB of 9.8 GiB); "
        "from the peaks at 64 and 128"
    )
    assert memory.text == said
    analysis = analyse(race.session.snapshot())
    page = " ".join("".join(text for text, *_ in row) for row in lane_rows(analysis, race.lane, 200))
    assert said in " ".join(page.split())
    found = to_json(analysis)["lanes"][0]["batch_memory"]
    assert (found["id"], found["fits"], found["next"], found["next_fits"]) == ("batch_fits", 512, 1_024, False)


def test_the_key_warns_of_a_size_that_does_not_fit_and_no_advice_names_one():
    race = OneLane()
    race.trains()
    lane = race.trains(value=512)
    assert "1024 does not fit in GPU memory: about 10 GiB" in effect([lane], BATCH)
    assert effect([race.trains(value=64)], BATCH) == "batch 64 → 128"
    lane = race.trains(value=512)
    assert not [one for one in causes_of(lane, ["dispatch"], [BATCH]) if one.knob == "batch_size"]
    small = replace(lane, settings={**lane.settings, "batch_size": 256})
    assert "batch 512" in [setting_text(one.knob, one.value) for one in causes_of(small, ["dispatch"], [BATCH])]


def test_a_size_counts_only_where_its_peak_is_its_own():
    race = OneLane()
    race.trains(value=256)
    assert not batch_memory_of(race.trains(value=64)), "the peak is still that of 256"
    race.trains(value=512, marks=("warm-up",))
    assert not batch_memory_of(race.lane), "no steady window"
    assert batch_memory_of(race.trains(value=512)) == (256, 512)
    race.trains("xla", True)
    assert not batch_memory_of(race.lane), "with another setting all may be different"
    race.session.accept(LaneStarted(lane="gpu:0", at_ns=race.at_ns, pid=8, settings=dict(race.settings)))
    race.peak = 0
    race.trains(value=64)
    assert batch_memory_of(race.trains(value=128)) == (64, 128), "a new process has a peak of its own"


def batch_memory_of(lane: LaneState) -> tuple[int, ...]:
    memory = batch_memory(lane)
    return tuple(size for size, _ in memory.measured) if isinstance(memory, BatchMemory) else ()


def test_without_the_drivers_figure_for_the_lane_no_size_is_told_not_to_fit():
    race = OneLane()
    race.trains()
    lane = race.trains(value=128)
    use = replace(lane.gpu_use, source="TensorFlow's allocator")
    memory = batch_memory(replace(lane, gpu_use=use))
    assert (memory.fits(512), memory.fits(1_024), memory.most_bytes) == (True, None, None)
    assert ", 1024 may not (" in memory.text


@pytest.mark.parametrize("device", ["cpu", "gpu:0+1"])
def test_a_lane_without_one_gpu_says_why_nothing_is_predicted(device):
    race = OneLane(device)
    race.trains()
    race.trains(value=128)
    found = to_json(analyse(race.session.snapshot()))["lanes"][0]
    assert found["batch_memory"] is None
    assert found["missing"]["batch_memory"].startswith("predicted for lanes on")


@given(
    fixed=st.integers(0, 2**36),
    each=st.integers(1, 2**28),
    sizes=st.lists(st.integers(1, 4_096), min_size=2, max_size=5, unique=True),
    times=st.integers(1, 64),
)
def test_the_range_holds_what_a_step_needs(fixed, each, sizes, times):
    measured = tuple((size, fixed + each * size) for size in sorted(sizes))
    size = times * max(sizes)
    least, most = BatchMemory(measured, 0, None).needs(size)
    need = fixed + each * size
    assert least <= need * (1 + 1e-9)
    assert need <= most * (1 + 1e-9)
