"""CPU time that others took in slices, their use of GPUs, and the choice of the idlest GPU."""

from dataclasses import fields, replace

import pytest
from support.eight_gpus import GIB, samples
from support.events import reread
from support.results import to_json
from support.shared_gpu import shared_demo

from tfmon.analysis.analysis import analyse
from tfmon.analysis.others import (
    NO_DELAYS,
    NO_SLICES,
    NO_STOLEN,
    contention,
    cpu_ratio,
    gpu_others,
    is_free,
    ranked,
    state,
    why,
    windows_with_others,
)
from tfmon.analysis.prediction import looks_of
from tfmon.model.gpu_samples import GpuActivity, ProcessName
from tfmon.model.race import Race
from tfmon.model.readings import ALWAYS_VALID, FIXED, Missing, SliceLoad
from tfmon.model.windows import SliceSpeed
from tfmon.probes.base import Gpu, absent_gpu
from tfmon.reports.race_report import to_text

MS = 1_000_000
QUIET = SliceLoad(
    span_ns=500 * MS, examples=1_000, cpu_ns=900 * MS, delay_ns=9 * MS, others_ns=9 * MS, stolen_ns=0, cores=2
)
BUSY = replace(QUIET, examples=600, cpu_ns=540 * MS, delay_ns=400 * MS, others_ns=400 * MS)


def slices(*loads: SliceLoad | None) -> list[SliceSpeed]:
    return [SliceSpeed(number, number, 900, 480 * MS, load=load) for number, load in enumerate(loads, 1)]


def test_the_share_of_contended_slices_is_told_from_five_percent_on():
    found = contention([slices(*[QUIET] * 4, BUSY), slices(*[QUIET] * 3, BUSY, BUSY)])
    assert found.slices_share == pytest.approx(0.3)
    assert found.text().startswith(
        "other programs took CPU time during 30 % of the slices; counting only CPU time"
    )
    assert found.text(undecided=True).startswith("the machine is too busy for a quick answer: other programs")
    quiet = contention([slices(*[QUIET] * 5)] * 2)
    assert quiet.text() == quiet.text(undecided=True) == ""


@pytest.mark.parametrize(("taken", "said"), [((0.0,) * 20, True), ((None, *(40.0,) * 3, *(0.0,) * 16), False)])
def test_what_a_gpu_does_is_not_put_down_to_a_lane_that_shares_it(taken, said):
    activity = GpuActivity(**{field.name: 90.0 for field in fields(GpuActivity)})
    shown = analyse(shared_demo(taken, activity=activity).session.snapshot())
    also = shown.lane("gpu:0").bottleneck.also
    assert any("bandwidth, which limits them" in line for line in also) is said


def test_few_pairs_of_a_busy_machine_are_no_one_look_at_the_end():
    race, few = Race(interval=FIXED), [BUSY] * 4 + [QUIET] * 3
    assert looks_of(race, [slices(*few)] * 2, over=True).kind == ALWAYS_VALID
    assert looks_of(race, [slices(*few, BUSY)] * 2, over=True).kind == FIXED, "many pairs hold slow changes"
    assert looks_of(race, [slices(*[BUSY] * 3 + [QUIET] * 4)] * 2, over=True).kind == FIXED
    assert looks_of(race, [slices(*[None] * 7)] * 2, over=True).kind == FIXED, "no load is known"


def test_the_ratio_of_cpu_time_is_that_of_the_computing_however_little_of_the_cpu_a_lane_got():
    dearer = [replace(load, examples=load.examples * 2 // 3) for load in (QUIET, BUSY, QUIET, QUIET, BUSY, BUSY)]
    first = slices(BUSY, QUIET, QUIET, BUSY, QUIET, BUSY)
    assert cpu_ratio(first, slices(*dearer)) == pytest.approx(1.5, rel=0.01)
    assert cpu_ratio(first[:4], slices(*dearer)) is None, "too few rounds"
    starved = replace(QUIET, cpu_ns=300 * MS, delay_ns=400 * MS)
    assert cpu_ratio(first, slices(*[starved] * 6)) is not None, "one that waits for a core is"
    wider = replace(QUIET, cpu_ns=7_500 * MS, cores=16)
    assert cpu_ratio(first, slices(*[wider] * 6)) is None, "one on a GPU with two loaders, one on 15 cores"
    waiting = replace(QUIET, cpu_ns=300 * MS)
    assert cpu_ratio(first, slices(*[waiting] * 6)) is None, "a lane that waits is not bound by the CPU"


def test_stolen_time_is_told_and_what_is_not_reported_has_its_reason():
    stolen = replace(QUIET, stolen_ns=50 * MS)
    assert "this virtual machine loses 10 % of a core to others" in contention([slices(*[stolen] * 5)] * 2).text()
    unknown = replace(QUIET, delay_ns=None, stolen_ns=None)
    found = contention([slices(*[unknown] * 5)])
    assert (found.slices_share, found.stolen_share, found.text()) == (NO_DELAYS, NO_STOLEN, "")
    assert contention([slices(None)]).slices_share == NO_SLICES


def test_the_verdict_and_the_bottleneck_and_the_json_say_so():
    demo = shared_demo([0, 0, 40, 40, 40])
    shown = analyse(demo.session.snapshot())
    assert "another process took 40 % of gpu:0 during" in shown.verdict.note
    assert shown.verdict.note.count("the figures include that") == 1
    bottleneck = shown.lane("gpu:0").bottleneck
    assert bottleneck.text.endswith(" (others took 40 % of gpu:0)")
    assert any("try changes after those processes have ended" in line for line in bottleneck.also)
    assert any("others hold 60 GiB of this GPU's memory, by ana" in line for line in bottleneck.also)
    assert "others took" not in shown.lane("cpu").bottleneck.text
    cpu, gpu = to_json(shown)["lanes"]
    assert cpu["gpu_others"] is None
    assert (gpu["gpu_others"]["share_pct"], gpu["gpu_others"]["first"]["user"]) == (pytest.approx(40), "ana")
    assert "another process took 40 % of gpu:0" in to_text(shown)
    assert "GPU busy is over the whole race, other lanes' slices included" in to_text(shown)
    unknown = shared_demo([None] * 5).session.snapshot().lane("gpu:0")
    assert gpu_others(unknown) is None, "the driver has no shares"


def test_lanes_that_train_at_once_are_told_by_time():
    demo = shared_demo([0, 0, 30, 30, 0], mode="concurrent")
    assert gpu_others(demo.session.snapshot().lane("gpu:0")).text.startswith(
        "another process took 30 % of gpu:0 during 40 % of the time"
    )
    assert "took 30 %" in analyse(demo.session.snapshot()).verdict.note


def test_windows_with_the_work_of_others_are_marked_and_count_all_the_same():
    demo = shared_demo([0, 50, 0])
    lane = demo.session.snapshot().lane("gpu:0")
    assert 0 < windows_with_others(lane, 0) < len(lane.points)
    assert windows_with_others(lane, 1) == 0
    assert lane.measurements.discarded.keys() <= {"warm-up"}
    assert [mark.text for mark in lane.changes.marks] == ["others 50 %"]


EIGHT = samples(1)


def test_free_is_what_has_no_process_no_load_and_no_memory_that_somebody_must_hold():
    assert [sample.index for sample in EIGHT if is_free(sample)] == [1, 6]
    empty = EIGHT[1]
    assert not is_free(reread(empty, busy_pct=12.0))
    assert not is_free(reread(empty, used_bytes=9.0 * GIB))  # a container hides whose it is
    assert is_free(reread(empty, busy_pct=Missing("split up")))
    assert not is_free(absent_gpu(Gpu(1, "GPU-x", "lost", 1), 1, "the GPU is lost"))
    mine = reread(EIGHT[5], names={7006: ProcessName("me", "tfmon", ours=True)})
    assert ranked([EIGHT[4], mine])[0].index == 5 and not is_free(mine), "ours is nobody else, but it is loaded"


def test_the_words():
    assert why(EIGHT[1:2], 8) == "the idlest of 8 GPUs: no process, 0 % busy, 80 GiB free"
    assert state(EIGHT[0]) == "2 processes, 97 % busy, 4.0 GiB free"
    assert state(EIGHT[0], with_users=True) == "2 processes of ana, 97 % busy, 4.0 GiB free"
    hidden = reread(EIGHT[1], no_list_reason="WSL2 tells none")
    assert state(hidden).startswith("processes not listed")
