"""Looking closer, with keys and mouse: zoom, charts, a display that stands still, copies."""

import shlex

import pytest
from support.ui import CPU_MACHINE, Demo, racing_demo

from tfmon.analysis.analysis import analyse
from tfmon.model.spec import LaneSpec
from tfmon.ui.screens.report_pages import CopyPage, continued, verdict_lines
from tfmon.ui.source import OWN

from .pilot import app_of, press, shown, until

SIZE = (120, 36)
COMMAND = "tfmon race small-dense --lane cpu,batch_size=16 --lane cpu,batch_size=512"


async def test_z_gives_a_lane_the_whole_width_and_takes_it_back(demo, app, pilot):
    await press(pilot, "z")
    assert " C  cpu " in shown(pilot) and " G  gpu:0 " not in shown(pilot)
    await press(pilot, "tab")
    assert " G  gpu:0 " in shown(pilot) and app.monitor.view.zoomed, "Tab goes to the next lane, never to all"
    await press(pilot, "B")
    assert [call[1] for call in demo.controls.calls] == ["gpu:0"], "keys act on the zoomed lane"
    await press(pilot, "tab")
    assert " C  cpu " in shown(pilot)
    await press(pilot, "z")
    assert (app.monitor.view.zoomed, app.monitor.view.focused) == (False, None), "the focus is as it was before"
    await press(pilot, "tab", "z", "escape")
    assert not app.monitor.view.zoomed and app.monitor.view.focused == "cpu", "Esc ends the zoom before the focus"


@pytest.mark.parametrize("pilot", [(40, 6)], indirect=True)
async def test_z_says_that_a_small_terminal_has_no_room(app, pilot):
    await press(pilot, "z")
    assert "there is no room to zoom" in app.monitor.view.message and not app.monitor.view.zoomed


async def test_a_double_click_zooms_and_two_clicks_in_two_places_do_not(app, pilot):
    await pilot.click(offset=(90, 10), times=2)
    await until(pilot, lambda: app.monitor.view.zoomed)
    assert "━ G  gpu:0 " in shown(pilot) and "─ C  cpu " not in shown(pilot)
    await pilot.click(offset=(50, 12), times=2)
    await until(pilot, lambda: not app.monitor.view.zoomed)
    await pilot.click(offset=(10, 10))
    await pilot.click(offset=(90, 10))
    await until(pilot, lambda: app.monitor.view.focused == "gpu:0")
    assert not app.monitor.view.zoomed


async def test_keys_change_what_the_charts_show_and_the_axis_and_the_time():
    app = app_of(racing_demo(CPU_MACHINE))
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, "v", "v", "v")
        assert app.monitor.view.metric == "loss" and "the charts show loss" in shown(pilot)
        assert shown(pilot).count("┤ loss ") == 2
        await press(pilot, "a")
        assert app.monitor.view.scale == OWN and shown(pilot).count("loss · own scale") == 2
        await press(pilot, "h")
        assert shown(pilot).count("5 min ago") == 2
        await press(pilot, "h", "h", "a", *("v" for _ in range(4)))
        view = app.monitor.view
        assert (view.metric, view.scale, view.span_s) == ("throughput", "shared", 60)


async def test_y_copies_the_verdict_and_the_command_and_shows_them_to_select(app, pilot):
    app.monitor.source.repeat = lambda: COMMAND
    await press(pilot, "y")
    verdict = app.monitor.analysis.verdict.answer
    assert app.clipboard.splitlines()[0] == f"small-dense: {verdict}"
    assert app.clipboard.splitlines()[-1] == COMMAND
    assert f"\nsmall-dense: {verdict}" in shown(pilot) and f"\n{COMMAND}\n" in shown(pilot)
    await press(pilot, "y")
    assert not isinstance(app.screen, CopyPage)


def test_the_verdict_is_copied_with_every_knob_in_which_the_lanes_differ():
    lanes = [LaneSpec("cpu", {"batch_size": size}) for size in (10, 64)]
    demo = Demo(lanes, CPU_MACHINE, mode="turns").go()
    demo.apply(demo.names[0], "prefetch", "auto")
    demo.race(20)
    lines = verdict_lines(analyse(demo.session.snapshot()))
    assert "A: cpu, batch 10, prefetch auto" in lines and "B: cpu, batch 64, prefetch off" in lines


@pytest.mark.parametrize("width", [20, 40, 80, 300])
def test_a_command_in_several_lines_is_one_to_a_shell(width):
    command = f"{COMMAND} --set 'name=it is \"so\"' -- python 'my train.py' --x=1 ''\"'\"''"
    lines = continued(command, width)
    joined = "\n".join(lines).replace("\\\n", "")
    assert shlex.split(joined) == shlex.split(command)
    assert all(line.endswith(" \\") for line in lines[:-1])
