"""Which batch sizes fit is predicted from peaks at two sizes, with a range that holds, and is never made up."""

from dataclasses import replace

from support.events import SECOND, gpu_sample, phase, tree_sample, window
from support.results import to_json

from tfmon.analysis.analysis import analyse
from tfmon.analysis.batch_memory import batch_memory
from tfmon.analysis.causes import causes_of, setting_text
from tfmon.model.events import LaneStarted
from tfmon.model.knobs import Knob
from tfmon.model.lane_events import KnobApplied
from tfmon.model.lane_state import RACING, LaneState
from tfmon.model.race import Machine, Race
from tfmon.model.readings import Missing
from tfmon.model.session import Session
from tfmon.model.spec import LaneSpec, name_lanes
from tfmon.ui.screens.lane_page import lane_rows
from tfmon.ui.source import effect

MIB, GIB = 2**20, 2**30
CONTEXT = 500 * MIB
"""Memory of the lane that the driver counts and TensorFlow's allocator does not."""
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
    assert not [cause for cause in causes_of(lane, ["dispatch"], [BATCH]) if cause.knob == "batch_size"]
    small = replace(lane, settings={**lane.settings, "batch_size": 256})
    assert "batch 512" in [
        setting_text(cause.knob, cause.value) for cause in causes_of(small, ["dispatch"], [BATCH])
    ]
