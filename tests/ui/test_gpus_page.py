"""The page of the GPUs: its list, marks, order and filter, and its text without a GPU."""

from dataclasses import replace

import pytest
from support.eight_gpus import samples
from support.events import reread
from support.shared_gpu import shared_demo
from support.ui import CPU_MACHINE, HOSTS, SECOND, Demo, connect

from tfmon.analysis.others import why
from tfmon.model.readings import Missing
from tfmon.model.spec import LaneSpec
from tfmon.ui.screens.gpus_page import gpu_entries, gpus_of

from .pilot import app_of, press, shown, until


def eight() -> Demo:
    """A race on gpu:1 of eight, in its 20th second."""
    specs = [LaneSpec("cpu"), LaneSpec("gpu:1", chosen="the idlest of 8 GPUs: no process, 0 % busy, 80 GiB free")]
    demo = Demo(specs, mode="turns")
    demo.sample_gpus, demo.equip = lambda: None, lambda _lane: None
    demo.go()
    for _ in range(10):
        demo.race(2)
        take(demo)
    return demo


def take(demo: Demo, **more) -> None:
    since_ns = demo.clock() - 2 * SECOND
    for sample in samples(demo.clock(), ours={1: (4_001, 55, 8)}, since_ns=since_ns, **more):
        demo.session.accept(sample)


def lines(demo: Demo, width: int) -> list[str]:
    _, entries = gpu_entries(gpus_of(demo.session.snapshot()), width)
    return [" ".join(text for text, _ in entry.row) for entry in entries]


def test_a_gpu_that_cannot_be_read_says_why_and_one_that_is_stale_since_when():
    demo = eight()
    lost = reread(
        samples(demo.clock())[2], busy_pct=Missing("the GPU is lost"), used_bytes=Missing("the GPU is lost")
    )
    demo.session.accept(lost)
    demo.clock.ahead(9)
    take(demo, gpus=1)
    told = lines(demo, 120)
    assert "97 %" in told[0] and "stale: read 9.0 s ago" in told[3]
    demo.session.accept(replace(lost, at_ns=demo.clock()))
    assert "n/a (the GPU is lost)" in lines(demo, 120)[2]


def test_gpus_of_other_machines_are_listed_by_their_host_and_a_machine_of_two_names_once():
    demo = Demo([LaneSpec("gpu:0"), LaneSpec("gpu:0", host="gpu2"), LaneSpec("gpu:1", host="again")])
    connect(demo, "gpu2")
    connect(demo, "again", HOSTS["gpu2"])
    for host, count in (("", 1), ("gpu2", 2), ("again", 2)):
        for sample in samples(demo.clock(), host=host, gpus=count):
            demo.session.accept(sample)
    rows = gpus_of(demo.session.snapshot())
    assert [row.label for row in rows] == ["gpu:0", "gpu2/gpu:0", "gpu2/gpu:1"]
    assert [[lane.spec.id for _, lane in row.lanes] for row in rows] == [["A"], ["B"], ["C"]]


async def test_the_page_counts_and_sorts_the_processes_by_their_share():
    async with app_of(eight()).run_test(size=(120, 36)) as pilot:
        await press(pilot, "G")
        await until(pilot, lambda: "8 GPUs, 1 free" in shown(pilot))
        assert shown(pilot).count("ana") == 2 and "▪" in shown(pilot)
        for keys, first in (("ooooo", True), ("O", False)):
            await press(pilot, *keys)
            rows = [line for line in shown(pilot).splitlines() if "bob" in line and "gpu:" in line]
            assert ["serve.py" in row for row in rows] == [first, not first], "41 %, then 88 %"


async def test_gpus_that_have_no_room_are_scrolled_to():
    demo = eight()
    connect(demo, "gpu2")
    for sample in samples(demo.clock(), host="gpu2"):
        demo.session.accept(sample)
    async with app_of(demo).run_test(size=(80, 24)) as pilot:
        await press(pilot, "G")
        await until(pilot, lambda: "16 GPUs, 3 free" in shown(pilot))
        assert "gpu2/gpu:7" not in shown(pilot)
        await press(pilot, "tab", "end")
        await until(pilot, lambda: "gpu2/gpu:7" in shown(pilot))
        await press(pilot, "tab", "end")
        await until(pilot, lambda: pilot.app.screen.entry is pilot.app.screen.shown[-1])


async def test_without_a_gpu_the_page_says_so_and_why():
    demo = Demo([LaneSpec("cpu")], CPU_MACHINE)
    app = app_of(demo, watch_gpus=lambda: "no NVIDIA driver (libnvidia-ml.so.1 was not found)")
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "G")
        await until(pilot, lambda: "no GPU on this machine: no NVIDIA driver" in shown(pilot))
        await press(pilot, "slash", "k")
        assert app.screen.tab == "knobs", "a filter of nothing would take the keys"


@pytest.mark.parametrize("size", [(80, 24), (120, 36)], ids=lambda size: "{}x{}".format(*size))
def test_eight_gpus(snap_compare, size):
    assert snap_compare(app_of(eight()), terminal_size=size, press=["G"])


async def test_the_pane_of_a_lane_that_gets_ready_and_its_page_say_why_it_has_its_gpu():
    demo = Demo([LaneSpec("cpu"), LaneSpec("gpu:1", chosen=why(samples(1)[1:2], 8))])
    demo.enter("gpu:1", "importing")
    async with app_of(demo).run_test(size=(120, 50)) as pilot:
        await until(pilot, lambda: "device  the idlest of 8 GPUs: no process, 0 % busy" in shown(pilot))
        await press(pilot, "tab", "tab", "i")
        await until(pilot, lambda: "gpu:1: the idlest of 8 GPUs" in shown(pilot))


async def test_the_page_of_a_lane_tells_what_others_take_and_how_many_windows_are_marked():
    async with app_of(shared_demo([0, 40, 0])).run_test(size=(120, 90)) as pilot:
        await press(pilot, "tab", "tab", "i")
        await until(pilot, lambda: "another process took 40 % of gpu:0 during" in shown(pilot))
        assert "windows are marked" in shown(pilot) and "ana: python train.py" in shown(pilot)
        await press(pilot, "escape", "escape")
        await until(pilot, lambda: "others 40 %" in shown(pilot))
