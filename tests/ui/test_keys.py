"""All keys: ids, how they are written, the palette, the help, what each requests, and what W saves."""

import importlib
import pkgutil
import re
from dataclasses import replace
from itertools import combinations

import pytest
from support.profiles import memory_peak, profile
from support.ui import CPU_MACHINE, Demo, FakeRuns, hosts_demo, racing_demo
from textual.binding import Binding
from textual.command import CommandList, CommandPalette
from textual.screen import Screen
from textual.widgets import Input

import tfmon.ui.screens
from tfmon.analysis.analysis import analyse
from tfmon.model.events import BadLine, LaneEnded, RecordingChanged
from tfmon.model.knobs import BATCH_SIZE, PREFETCH
from tfmon.model.lane_events import KnobRefused, LaneFailed
from tfmon.model.lane_state import LaneEnd, ProcessInfo, StepFacts
from tfmon.model.race import RecordingState
from tfmon.model.readings import HostSample, Missing
from tfmon.ui.keys import KEYS, PAGE_KEYS, RACE_KEYS, STOP, label
from tfmon.ui.render import machine_rows
from tfmon.ui.render.rows import cells, plain
from tfmon.ui.screens.help import explained_numbers, help_rows
from tfmon.ui.screens.lane_page import _of_gpu, _of_host, _of_lane, _of_machine
from tfmon.ui.screens.race_screen import RaceScreen
from tfmon.ui.source import (
    next_values,
    pause_or_resume,
    reachable,
    to_improve,
)

from .pilot import app_of, frame, press, rows_of, shown, until

EXPLAINED = dict(explained_numbers())


def screens() -> list[type[Screen]]:
    for module in pkgutil.iter_modules(tfmon.ui.screens.__path__, "tfmon.ui.screens."):
        importlib.import_module(module.name)

    def below(kind: type) -> set[type]:
        return {kind}.union(*(below(subclass) for subclass in kind.__subclasses__()))

    return sorted(
        (one for one in below(Screen) if one.__module__.startswith("tfmon.")), key=lambda one: one.__name__
    )


def test_every_binding_of_ours_has_an_id_but_those_that_edit_text():
    assert {"RaceScreen", "KnobPage", "LogPage", "ReplayScreen"} <= {screen.__name__ for screen in screens()}
    for screen in screens():
        bindings = [one for one in screen.__dict__.get("BINDINGS", ()) if isinstance(one, Binding)]
        fixed = {binding.key for binding in bindings if binding.id is None and binding.action != "refuse"}
        assert fixed <= {"backspace", "ctrl+u"}, screen
        assert {binding.id for binding in bindings if binding.id is not None} <= {key.id for key in KEYS}, screen


def test_ids_are_unique_and_built_in_keys_of_the_race_do_not_clash():
    assert len({key.id for key in KEYS}) == len(KEYS)
    for one, other in combinations(RACE_KEYS, 2):
        assert not set(one.keys.split(",")) & set(other.keys.split(","))


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        ("f", "f"), ("F", "F"), ("question_mark", "?"), ("escape", "Esc"), ("ctrl+x", "Ctrl+X"),
        ("pagedown", "PgDn"),
        ("f5", "F5"), ("plus", "+"), ("minus", "-"), ("full_stop", "."), ("shift+tab", "Shift+Tab"),
        ("space", "Space"), ("ctrl+at", "Ctrl+@"),
    ],
)  # fmt: skip
def test_keys_are_written_as_people_do(named, shown):
    assert label(named) == shown


async def test_keys_of_the_settings_file_replace_the_built_in_ones_and_are_shown():
    demo = racing_demo()
    app = app_of(
        demo, keymap={"batch.up": "f6", "knobs": "&", "close": "backspace", "help": "h", "chart.span": "f7"}
    )
    async with app.run_test(size=(200, 50)) as pilot:
        await press(pilot, "B")
        assert demo.controls.calls == []
        await press(pilot, "f6")
        assert demo.controls.calls[0][2:] == ("batch_size", 32)
        assert "b/F6 batch 20" in shown(pilot) and "& knobs" in shown(pilot)
        await press(pilot, "ampersand")
        assert "Knobs of all lanes" in shown(pilot) and "Backspace back" in shown(pilot)
        await press(pilot, "escape")
        assert "Knobs of all lanes" in shown(pilot)
        await press(pilot, "backspace", "h")
        assert re.search(r"F6 +double the batch", shown(pilot)) and not re.search(
            r" B +double the batch", shown(pilot)
        )


def options(pilot) -> list[str]:
    commands = pilot.app.screen.query_one(CommandList)
    return [str(commands.get_option_at_index(place).prompt) for place in range(commands.option_count)]


async def search(pilot, words: str = "") -> None:
    """Type words once the palette listens, and wait for what is found."""
    await until(pilot, lambda: isinstance(pilot.app.focused, Input))
    await press(pilot, *words)
    await until(pilot, lambda: options(pilot) and words in options(pilot)[0])


async def test_what_is_chosen_is_done_over_the_race_and_over_a_page():
    demo = racing_demo()
    app = app_of(demo)
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "colon")
        await search(pilot, "change prefetch:")
        await press(pilot, "enter")
        await until(pilot, lambda: demo.controls.calls)
        assert demo.controls.calls[0] == ("set_knob", "cpu", "prefetch", 1)
        await until(pilot, lambda: isinstance(app.screen, RaceScreen))
        await press(pilot, "question_mark", "colon")
        await until(pilot, lambda: isinstance(app.screen, CommandPalette))
        await search(pilot, "the theme nord")
        before = app.screen_stack[0].style_of("text").bgcolor
        await press(pilot, "enter")
        await until(pilot, lambda: app.theme == "nord" and app.screen_stack[0].style_of("text").bgcolor != before)
        await press(pilot, "colon")
        await search(pilot, "show all knobs")
        await press(pilot, "enter")
        await until(pilot, lambda: not isinstance(app.screen, CommandPalette) and "Knobs of" in shown(pilot))


SAID = "read only: this screen shows the race and changes nothing"
CHANGES = {
    "prefetch.next", "batch.down", "batch.up", "graph", "xla", "mixed", "pause", "mode", "try", "undo", "restart",
    "scenario", "lane.profile",
}  # fmt: skip
OTHERS = {"quit", "picture", "palette"}


async def test_keys_and_clicks_change_nothing_and_say_so_if_they_would_and_q_leaves():
    demo = racing_demo()
    app = app_of(demo, readonly=True)
    async with app.run_test(size=(120, 36)) as pilot:
        assert "read only: keys change nothing" in shown(pilot) and "to undo" not in shown(pilot)
        for key in RACE_KEYS:
            if key.id in OTHERS:
                continue
            app.monitor.say("")
            await press(pilot, key.keys.split(",")[0])
            assert (SAID in shown(pilot)) == (key.id in CHANGES), key.id
            if key.id in CHANGES:
                assert isinstance(app.screen, RaceScreen), key.id
            elif not isinstance(app.screen, RaceScreen):
                await press(pilot, "escape")
            assert isinstance(app.screen, RaceScreen), key.id
        for keys in (("k", "right"), ("i", "K"), ("E", "enter"), ("E", "u")):
            app.monitor.say("")
            await press(pilot, *keys)
            assert SAID in shown(pilot), keys
            await press(pilot, "escape")
        app.monitor.say("")
        bottom = shown(pilot).splitlines()[-1]
        assert "prefetch" not in bottom and "restart" not in bottom and "? help" in bottom
        assert demo.controls.calls == [] and demo.experiments.calls == []
        await press(pilot, "q")
    assert app.return_value == "quit"


async def test_w_saves_a_report_and_says_where_or_why_not():
    demo, runs = racing_demo(), FakeRuns()
    app = app_of(demo, runs=runs)
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "W")
        assert "no report: this is not recorded" in shown(pilot)
        recording = RecordingState("/runs/race.jsonl")
        demo.session.accept(RecordingChanged(at_ns=demo.clock(), recording=recording))
        app.monitor.pull()
        await press(pilot, "W")
        await until(pilot, lambda: "saved race.html" in shown(pilot))
        assert runs.calls == [("report", "/runs/race.jsonl")]
        runs.refusal = "no space left"
        await press(pilot, "W")
        await until(pilot, lambda: "no space left" in shown(pilot))


SAYS_ITSELF = {"process", "versions", "name", "temperature", "for memory", "state", "processor", "installed"}
EXPLAINED_WITH = {"busy", "used by lane", "limited by", "link"}
"""Those of `gpu`, `gpu mem`, `clocks` and `PCIe`."""


@pytest.mark.parametrize("machine", [None, CPU_MACHINE])
def test_every_line_of_a_pane_is_explained(machine):
    demo = racing_demo(machine) if machine else racing_demo()
    first, last = demo.names[0], demo.names[-1]
    demo.session.accept(BadLine(lane=first, at_ns=demo.clock(), problem="x"))
    demo.session.accept(
        KnobRefused(lane=last, at_ns=demo.clock(), request=1, knob="prefetch", value=1, reason="no")
    )
    rows = plain(rows_of(frame(demo, 220, 50)))
    labels = {match[1].strip() for row in rows for match in re.finditer(r"│ ([a-z][a-z ]{6} )(?=\S)", row)}
    expected = {*["step", "time", "loss", "done", "knobs", "cpu", "memory", "note", "refused"]}
    assert expected | ({"gpu"} if machine is None else set()) <= labels
    assert machine is None or "gpu" not in labels, "no lane has one"
    assert labels <= {name for name, _ in EXPLAINED["In a pane"]}


def test_every_reading_on_the_page_of_a_lane_is_explained_or_says_itself_what_it_is():
    demo = racing_demo()
    snapshot = demo.session.snapshot()
    peaks = (memory_peak({"net/dense/Relu": 1100}, "GPU:0"),)
    step = StepFacts(computing_share=0.5, profiles=(profile({("net/dense/MatMul", "MatMul"): 1e6}, memory=peaks),))
    lane = replace(snapshot.lane("gpu:0"), step=step, process=ProcessInfo(number=2))
    gpu = replace(snapshot.gpus[0], activity=Missing("not told"))
    host = HostSample(at_ns=0, cpu_pct=1.0, memory_used_bytes=1.0, memory_total_bytes=2.0)
    remote = hosts_demo().session.snapshot()
    there = (*machine_rows.lines(remote, remote.lanes[1]), *_of_machine(remote.machine_of(remote.lanes[1])))
    shown = {name for name, _ in (*_of_lane(lane), *_of_gpu(lane, gpu), *_of_host(host), *there)}
    assert {"cpu", "discarded", "clocks", "steal", "round trip"} <= shown
    names = [name for section in EXPLAINED.values() for name, _ in section]
    explained = set(names)
    assert len(explained) == len(names), "once"
    assert shown <= explained | SAYS_ITSELF | EXPLAINED_WITH
    assert {name for name, _ in EXPLAINED["On the page of a lane"]} <= shown
    assert not explained & SAYS_ITSELF


def test_the_help_lists_every_key_and_fits():
    for width in (24, 40, 80, 200):
        rows = help_rows({"quit": "ctrl+x"}, width)
        shown = plain(rows)
        for key in (*RACE_KEYS, *PAGE_KEYS, STOP):
            named = "Ctrl+X" if key.id == "quit" else label(key.keys)
            assert any(row.startswith(f"  {named} ") for row in shown), (width, key.id)
        assert width < 40 or max(map(cells, rows)) <= width


@pytest.fixture
def demo() -> Demo:
    demo = Demo().go()
    return demo


def lanes(demo: Demo):
    return demo.session.snapshot().lanes


def test_a_press_requests_the_next_value_of_every_lane_from_what_was_requested_before(demo):
    assert next_values(lanes(demo), BATCH_SIZE, 1) == ({"cpu": 16, "gpu:0": 16}, "")
    assert next_values(lanes(demo), BATCH_SIZE, -1)[0] == {"cpu": 8, "gpu:0": 8}
    assert next_values(lanes(demo), PREFETCH, 1)[0] == {"cpu": 1, "gpu:0": 1}
    demo.ask("cpu", "batch_size", 16)
    assert next_values(lanes(demo), BATCH_SIZE, 1)[0] == {"cpu": 32, "gpu:0": 16}


@pytest.mark.parametrize(
    ("value", "direction", "said"),
    [(1, -1, "1; it takes a whole number from 1"), (512, 1, "512, and the data has 1000 examples")],
)
def test_the_end_of_the_range_or_of_the_data_is_said_and_does_not_stop_other_lanes(demo, value, direction, said):
    demo.ask("cpu", "batch_size", value)
    assert next_values(lanes(demo)[:1], BATCH_SIZE, direction) == ({}, f"batch size is already {said}")
    assert next_values(lanes(demo), BATCH_SIZE, -1)[0]["gpu:0"] == 8


def test_any_lane_that_races_is_paused_first_and_only_then_all_go_on(demo):
    demo.enter("cpu", "paused")
    pause, resume = pause_or_resume(lanes(demo))
    assert ([lane.spec.name for lane in pause], resume) == (["gpu:0"], [])
    demo.enter("gpu:0", "paused")
    pause, resume = pause_or_resume(lanes(demo))
    assert (pause, [lane.spec.name for lane in resume]) == ([], ["cpu", "gpu:0"])


def test_advice_is_tried_on_a_lane_that_trains_and_on_a_gpu_first(demo):
    demo.race(10)
    assert to_improve(analyse(demo.session.snapshot()), lanes(demo)) == "gpu:0"
    demo.fail("gpu:0")
    assert to_improve(analyse(demo.session.snapshot()), lanes(demo)) == "cpu"
    assert to_improve(analyse(demo.session.snapshot()), []) is None


class TestReachable:
    """Which lanes a knob's key acts on."""

    @pytest.fixture
    def lanes(self):
        demo = Demo().go()
        demo.session.accept(LaneFailed(lane="gpu:0", at_ns=1, kind="out_of_memory", message="out of memory"))
        demo.session.accept(LaneEnded(lane="gpu:0", at_ns=2, exit_code=1, signal=None, requested=False))
        return demo.session.snapshot().lanes

    @pytest.mark.parametrize(
        ("knob", "direction", "focused", "names"),
        [
            (BATCH_SIZE, -1, False, ["cpu", "gpu:0"]),
            (BATCH_SIZE, 1, False, ["cpu"]),
            (PREFETCH, 1, False, ["cpu"]),
            (PREFETCH, 1, True, ["cpu", "gpu:0"]),
        ],
    )
    def test_one_that_ran_out_of_memory_starts_again_with_a_smaller_batch_or_when_it_is_meant(
        self, lanes, knob, direction, focused, names
    ):
        assert [lane.spec.name for lane in reachable(lanes, knob, direction, focused=focused)] == names

    def test_one_whose_process_is_not_gone_yet_waits(self, lanes):
        lanes = [replace(lane, end=LaneEnd()) for lane in lanes]
        assert [lane.spec.name for lane in reachable(lanes, BATCH_SIZE, -1, focused=True)] == ["cpu"]
