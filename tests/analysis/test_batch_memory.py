"""Which batch sizes fit is predicted from peaks at two sizes, with a range that holds, and is never made up."""

from dataclasses import replace

from support.events import SECOND, gpu_sample, phase, tree_sample, window
from support.results import to_json

from tfmon.analysis.analysis import analyse
from tfmon.analysis.batch_memory import batch_memory
from tfmon.analysis.causes import causes_of, setting_text
from tfmon.model.events import LaneStarted
from tfmon.model.knobs import Knob
from tfmon.model.lane_events import RACING, KnobApplied
from tfmon.model.lane_state import LaneState
from tfmon.model.race import Machine, Race
from tfmon.model.readings import Missing
from tfmon.model.session import Session
from tfmon.model.spec import LaneSpec, name_lanes
from tfmon.ui.screens.lane_page import lane_rows
from tfmon.ui.source import effect

MIB, GIB = 2**20, 2**30
BATCH = Knob("batch_size", 64, "", "live", low=1)


class OneLane:
    """A race of one lane, which needs 400 MiB, and 10 MiB for each example of a batch."""

    def __init__(self) -> None:
        self.session, self.peak, self.at_ns, self.batch = Session(Machine(), lambda: 0), 0, 1, 64
        self.session.begin(Race(), name_lanes([LaneSpec("gpu:0")]))
        self.session.accept(LaneStarted(lane="gpu:0", at_ns=1, pid=7, settings={"batch_size": 64, "xla": False}))
        self.session.accept(tree_sample(pids=(7,), lane="gpu:0"))
        self.session.accept(phase(RACING, lane="gpu:0"))

    def trains(self, batch: int = 64) -> LaneState:
        """Set the batch size, train, and sample the GPU: 10 GiB, of which others have 200 MiB."""
        self.at_ns += SECOND
        if batch != self.batch:
            self.batch, knob = batch, {"knob": "batch_size", "value": batch}
            self.session.accept(KnobApplied(lane="gpu:0", at_ns=self.at_ns, request=1, step=1, gap_ns=1, **knob))
        self.peak = max(self.peak, (400 + 10 * batch) * MIB)
        self.session.accept(
            window(
                lane="gpu:0", at_ns=self.at_ns + SECOND, settings={"batch_size": batch, "xla": False},
                gpu_memory_allocated_bytes=400 * MIB, gpu_memory_peak_bytes=self.peak,
            )
        )  # fmt: skip
        used = self.peak + 500 * MIB  # the driver counts more than TensorFlow's allocator
        self.session.accept(
            gpu_sample(total_bytes=10.0 * GIB, used_bytes=used + 200.0 * MIB, used_by_pid={7: used})
        )
        return self.session.snapshot().lanes[0]


def test_the_largest_batch_that_fits_is_told_from_two_sizes_before_the_key_is_pressed():
    race = OneLane()
    assert isinstance(batch_memory(race.trains()), Missing), "one size tells nothing"
    memory = batch_memory(race.trains(128))
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
    page = " ".join(
        "".join(text for text, *_ in row) for row in lane_rows(analysis, race.session.snapshot().lanes[0], 200)
    )
    assert said in " ".join(page.split())
    found = to_json(analysis)["lanes"][0]["batch_memory"]
    assert (found["id"], found["fits"], found["next"], found["next_fits"]) == ("batch_fits", 512, 1_024, False)


def test_the_key_warns_of_a_size_that_does_not_fit_and_no_advice_names_one():
    race = OneLane()
    race.trains()
    lane = race.trains(512)
    assert "1024 does not fit in GPU memory: about 10 GiB" in effect([lane], BATCH)
    assert effect([race.trains(64)], BATCH) == "batch 64 → 128"
    lane = race.trains(512)
    assert not [cause for cause in causes_of(lane, ["dispatch"], [BATCH]) if cause.knob == "batch_size"]
    small = replace(lane, settings={**lane.settings, "batch_size": 256})
    assert "batch 512" in [
        setting_text(cause.knob, cause.value) for cause in causes_of(small, ["dispatch"], [BATCH])
    ]
