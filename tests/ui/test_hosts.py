"""A race over several machines on the screen: each lane has the name and the readings of its own."""

import pytest
from support.ui import REMOTE, Demo, connect, hosts_demo, lose

from tfmon.model.events import HostConnecting, HostLost, LanePrinted, MachineKnown
from tfmon.model.lane_events import LaneFailed
from tfmon.model.race import Machine
from tfmon.model.spec import LaneSpec
from tfmon.ui.render import reading_rows
from tfmon.ui.render.rows import plain

from .pilot import app_of, frame, lane_page, press, rows_of, shown, until


def pane(demo: Demo, lane: str, width: int = 200, **view: bool) -> list[str]:
    place, rows = demo.names.index(lane), plain(rows_of(frame(demo, width, 50, **view)))
    return [row[width * place // 3 : width * (place + 1) // 3] for row in rows if row.startswith(("│", "╭"))]


def test_lanes_of_different_machines_train_at_the_same_time_and_those_of_one_take_turns():
    demo = hosts_demo()
    assert [("▸ training" in pane(demo, name)[0]) for name in demo.names] == [True, True, True]
    aliases = hosts_demo(specs=(LaneSpec("cpu"), LaneSpec("gpu:0", host="gpu2"), LaneSpec("cpu", host="gpu2")))
    aliases.session.grant_slice("gpu2/gpu:0", ["cpu"])
    assert [("▸ training" in pane(aliases, name)[0]) for name in aliases.names] == [True, True, False]
    assert "waiting" in pane(aliases, "gpu2/cpu")[0]


@pytest.mark.parametrize(
    ("host", "brief"),
    [("me@gpu3.lab.example.org", "gpu3/gpu:1"), ("10.0.0.17", "10.0.0.17/gpu:1"), ("fe80::7", "fe80::7/gpu:1")],
)
def test_a_narrow_pane_names_the_machine_without_user_and_domain_and_an_address_whole(host, brief):
    demo = Demo((LaneSpec("cpu"), LaneSpec("gpu:1", {"batch_size": 256}, host=host)))
    snapshot = demo.session.snapshot()
    names = reading_rows.lane_names(snapshot, snapshot.lanes[1])
    assert names[0].startswith(f"{host}/gpu:1 ") and names[-1] == brief
    assert sorted(names, key=len, reverse=True)[0] == names[0]


def test_a_pane_tells_that_nothing_comes_from_its_machine_unless_the_lane_does():
    demo = hosts_demo()
    demo.clock.ahead(4.2)
    assert any("link    nothing came for 4.2 s" in row for row in pane(demo, "gpu2/gpu:0"))
    assert "link silent 0:04" in pane(demo, "gpu2/gpu:0", 120)[0], "also where there is no room for the line"
    assert not any("nothing came" in row for row in pane(demo, "cpu")), "the own machine has no link"
    demo.clock.ahead(16)
    still = [any("no step for" in row for row in pane(demo, name)) for name in ("cpu", "gpu2/gpu:0")]
    assert still == [True, False], "it may well train"
    demo.train("gpu2/gpu:0", 7_663, 1.3, demo.clock())
    assert not any("nothing came" in row for row in pane(demo, "gpu2/gpu:0"))
    lose(demo, "me@gpu3")
    assert not any("nothing came" in row for row in pane(demo, demo.names[2])), "it is lost, and says so"


@pytest.mark.parametrize(
    ("specs", "words", "said"),
    [
        (REMOTE, "in rounds", "each round begins on all machines together"),
        ((*REMOTE, LaneSpec("cpu", host="gpu2")), "turns on each machine", "taking turns on each machine"),
    ],
)
async def test_the_mode_says_who_waits_for_whom(specs, words, said):
    demo = hosts_demo(mode="concurrent", specs=specs)
    async with app_of(demo).run_test(size=(200, 50)) as pilot:
        assert "all at once" in shown(pilot)
        await press(pilot, "t")
        assert said in shown(pilot)
        demo.session.set_mode("turns")
        await until(pilot, lambda: f"{words} · 3 machines" in shown(pilot))


def test_the_page_of_a_lane_tells_what_is_not_known_of_a_connection():
    demo = Demo(REMOTE)
    page = lane_page(demo, "gpu2/gpu:0")
    assert "connecting" in page and "n/a (not measured yet)" in page
    demo = hosts_demo()
    lose(demo, "gpu2", "nothing came for 6 s")
    demo.clock.ahead(12)
    assert "12.0 s ago: nothing came for 6 s" in lane_page(demo, "gpu2/gpu:0")
    assert "Connection" not in lane_page(demo, "cpu") and "by this monitor" in lane_page(demo, "cpu")


def test_a_lane_that_starts_waits_for_its_connection_then_for_python_there():
    demo = Demo(REMOTE)
    assert any("▸ connecting to gpu2" in row for row in pane(demo, "gpu2/gpu:0"))
    connect(demo, "gpu2")
    assert any("▸ starting Python on gpu2" in row for row in pane(demo, "gpu2/gpu:0"))
    assert any("▸ starting Python " in row for row in pane(demo, "cpu"))
    demo.session.accept(HostConnecting(at_ns=demo.clock(), host="gpu2"))
    assert any("▸ connecting to gpu2" in row for row in pane(demo, "gpu2/gpu:0")), "r connects again"
    lose(demo, "gpu2")
    assert any("r connects again" in row for row in pane(demo, "gpu2/gpu:0"))
    assert not any("r connects again" in row for row in pane(demo, "gpu2/gpu:0", replay=True))
    demo.session.accept(HostConnecting(at_ns=demo.clock(), host="gpu2"))
    rows = pane(demo, "gpu2/gpu:0")
    assert "connecting to gpu2 again…" in rows[1] and "✗ gpu2 is lost" in rows[2]
    assert not any("r connects again" in row for row in rows), "it was pressed"
    connect(demo, "gpu2")
    assert "gpu2 is connected again" in pane(demo, "gpu2/gpu:0")[1]


EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\r\n\x9b5A\u202eabc\x00\x7f"


async def test_nothing_that_a_host_says_reaches_the_terminal_with_control_characters():
    demo = hosts_demo()
    app = app_of(demo)
    async with app.run_test(size=(120, 60)) as pilot:
        facts = Machine(EVIL, EVIL, EVIL, 8, 8, 2**30, (EVIL,), EVIL, tensorflow=EVIL, python=EVIL, driver=EVIL)
        connect(demo, "gpu2", facts)
        demo.session.accept(MachineKnown(at_ns=demo.clock(), machine=facts))
        demo.session.accept(LanePrinted(lane="gpu2/gpu:0", at_ns=demo.clock(), lines=(EVIL,)))
        failed = LaneFailed(lane="gpu2/gpu:0", at_ns=demo.clock(), kind="host", message=EVIL, hint=EVIL)
        demo.session.accept(failed)
        demo.session.accept(HostLost(at_ns=demo.clock(), host="gpu2", reason=EVIL))
        app.monitor.say(EVIL)
        for keys in (["tab", "tab"], ["enter"], ["l"], ["escape"], ["z"], ["y"]):
            await press(pilot, *keys)
            assert "owned" in shown(pilot), keys
            assert shown(pilot).replace("\n", "").isprintable(), keys
