"""All keys: ids, how they are written, the palette, the help, what each requests, and what W saves."""

import importlib
import pkgutil
import re
from dataclasses import fields, replace

import pytest
from support.profiles import memory_peak, profile
from support.ui import CPU_MACHINE, Demo, FakeRuns, hosts_demo, racing_demo
from textual.binding import Binding
from textual.command import CommandList, CommandPalette
from textual.screen import Screen
from textual.widgets import Input

import tfmon.ui.screens
from tfmon.analysis.analysis import analyse
from tfmon.model.events import BadLine, RecordingChanged
from tfmon.model.gpu_samples import GpuActivity, GpuFault
from tfmon.model.knobs import BATCH_SIZE, PREFETCH
from tfmon.model.lane_events import KnobRefused
from tfmon.model.lane_state import LaneEnd, ProcessInfo, StepFacts
from tfmon.model.race import RecordingState
from tfmon.model.readings import HostSample, Missing
from tfmon.ui.keys import KEYS, PAGE_KEYS, RACE_KEYS, REPLAY_KEYS, STOP, label, watches
from tfmon.ui.render import reading_rows
from tfmon.ui.render.rows import cells, plain
from tfmon.ui.screens.help import explained_numbers, help_rows
from tfmon.ui.screens.lane_page import _of_gpu, _of_host, _of_lane, _of_machine
from tfmon.ui.screens.race_screen import RaceScreen
from tfmon.ui.source import next_values, reachable, to_improve

from .pilot import app_of, frame, press, rows_of, shown, until

EXPLAINED = dict(explained_numbers())


def screens() -> list[type[Screen]]:
    for module in pkgutil.iter_modules(tfmon.ui.screens.__path__, "tfmon.ui.screens."):
        importlib.import_module(module.name)

    def below(kind: type) -> set[type]:
        return {kind}.union(*(below(subclass) for subclass in kind.__subclasses__()))

    return [one for one in below(Screen) if one.__module__.startswith("tfmon.")]


def test_every_binding_of_ours_has_an_id_but_those_that_edit_text():
    assert {"RaceScreen", "KnobPage", "LogPage", "ReplayScreen"} <= {screen.__name__ for screen in screens()}
    for screen in screens():
        bindings = [one for one in screen.__dict__.get("BINDINGS", ()) if isinstance(one, Binding)]
        fixed = {binding.key for binding in bindings if binding.id is None and binding.action != "refuse"}
        assert fixed <= {"backspace", "ctrl+u"}, screen
        assert {binding.id for binding in bindings if binding.id is not None} <= {key.id for key in KEYS}, screen


def test_ids_are_unique_and_built_in_keys_of_a_race_and_of_a_replay_do_not_clash():
    assert len({key.id for key in KEYS}) == len(KEYS)
    watching = [key for key in RACE_KEYS if watches(key.action)]
    for scope in (RACE_KEYS, [*watching, *REPLAY_KEYS]):
        pressed = [name for key in scope for name in key.keys.split(",")]
        assert len(set(pressed)) == len(pressed)


WRITTEN = {
    "f": "f", "F": "F", "question_mark": "?", "escape": "Esc", "ctrl+x": "Ctrl+X", "pagedown": "PgDn",
    "f5": "F5", "plus": "+", "minus": "-", "full_stop": ".", "shift+tab": "Shift+Tab", "space": "Space",
    "ctrl+at": "Ctrl+@",
}  # fmt: skip


def test_keys_are_written_as_people_do():
    assert {key: label(key) for key in WRITTEN} == WRITTEN


async def test_keys_of_the_settings_file_replace_the_built_in_ones_and_are_shown():
    demo = racing_demo()
    keymap = {
        "batch.up": "f6",
        "knobs": "&",
        "close": "backspace",
        "help": "h",
        "chart.span": "f7",
        "filter": "f8",
    }
    app = app_of(demo, keymap=keymap)
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
        assert re.findall(r"(\S+) +double the batch", shown(pilot)) == ["F6"]
        await press(pilot, "backspace", "l", "slash")
        assert not pilot.app.screen.typing
        await press(pilot, "f8", *"cpu")
        assert pilot.app.screen.filter_text == "cpu"


def options(pilot) -> list[str]:
    commands = pilot.app.screen.query_one(CommandList)
    return [str(commands.get_option_at_index(place).prompt) for place in range(commands.option_count)]


async def search(pilot, words: str = "") -> None:
    """Type words once the palette listens, and wait for what is found."""
    await until(pilot, lambda: isinstance(pilot.app.focused, Input))
    await press(pilot, *words)
    await until(pilot, lambda: options(pilot) and words in options(pilot)[0])


async def test_what_is_chosen_is_done_over_the_race_and_over_a_page(demo, app, pilot):
    await press(pilot, "colon")
    await search(pilot, "prefetch:")
    await press(pilot, "enter")
    await until(pilot, lambda: demo.controls.calls)
    assert demo.controls.calls[0] == ("set_knob", "cpu", "prefetch", 1)
    await until(pilot, lambda: isinstance(app.screen, RaceScreen))
    await press(pilot, "question_mark", "colon")
    await until(pilot, lambda: isinstance(app.screen, CommandPalette))
    await search(pilot, "nord")
    before = app.screen_stack[0].style_of("text").bgcolor
    await press(pilot, "enter")
    await until(pilot, lambda: app.theme == "nord" and app.screen_stack[0].style_of("text").bgcolor != before)
    await press(pilot, "colon")
    await search(pilot, "all knobs")
    await press(pilot, "enter")
    await until(pilot, lambda: not isinstance(app.screen, CommandPalette) and "Knobs of" in shown(pilot))


SAID = "read only: this screen shows the race and changes nothing"
CHANGES = {
    "prefetch.next", "batch.down", "batch.up", "graph", "xla", "mixed", "pause", "mode", "try", "undo", "restart",
    "scenario", "lane.profile",
}  # fmt: skip
OTHERS = {"quit", "picture", "palette"}


async def test_keys_and_clicks_change_nothing_and_say_so_if_they_would_and_q_leaves():
    demo, runs = racing_demo(), FakeRuns()
    app = app_of(demo, readonly=True, runs=runs)
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
        await press(pilot, "R", "D", "y")
        assert "read only: this screen changes nothing" in shown(pilot)
        assert "delete" not in shown(pilot).splitlines()[-1]
        await press(pilot, "escape")
        app.monitor.say("")
        bottom = shown(pilot).splitlines()[-1]
        assert "prefetch" not in bottom and "restart" not in bottom and "? help" in bottom
        assert demo.controls.calls == demo.experiments.calls == runs.calls == []
        await press(pilot, "q")
    assert app.return_value == "quit"


async def test_w_saves_a_report_and_says_where_or_why_not(demo, app, pilot):
    runs = app.monitor.source.runs = FakeRuns()
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
    refused = KnobRefused(lane=last, at_ns=demo.clock(), request=1, knob="prefetch", value=1, reason="no")
    demo.session.accept(refused)
    rows = plain(rows_of(frame(demo, 220, 50)))
    labels = {match[1].strip() for row in rows for match in re.finditer(r"│ ([a-z][a-z ]{6} )(?=\S)", row)}
    expected = {"step", "time", "loss", "done", "knobs", "cpu", "memory", "note", "refused"}
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
    there = (
        *reading_rows.connection_lines(remote, remote.lanes[1]),
        *_of_machine(remote.machine_of(remote.lanes[1])),
    )
    shown = {name for name, _ in (*_of_lane(lane), *_of_gpu(lane, gpu), *_of_host(host), *there)}
    assert {"cpu", "discarded", "clocks", "steal", "round trip"} <= shown
    names = [name for section in EXPLAINED.values() for name, _ in section]
    explained = set(names)
    assert len(explained) == len(names), "once"
    assert shown <= explained | SAYS_ITSELF | EXPLAINED_WITH
    assert {name for name, _ in EXPLAINED["On the page of a lane"]} <= shown
    assert not explained & SAYS_ITSELF


def test_traffic_over_nvlink_and_who_caused_a_fault_are_on_the_page_of_a_lane():
    snapshot = racing_demo().session.snapshot()
    activity = GpuActivity(**{field.name: 2.0**20 for field in fields(GpuActivity)})
    gpu = replace(
        snapshot.gpus[0], activity=activity, faults=(GpuFault(1, 13, "a kernel failed", by_program=True),)
    )
    shown = dict(_of_gpu(snapshot.lane("gpu:0"), gpu))
    assert shown["PCIe"].endswith("; NVLink 1.0 MiB/s to the GPU, 1.0 MiB/s from it")
    assert shown["fault"] == "a kernel failed, which a program caused"


def test_the_help_lists_every_key_and_fits():
    for width in (24, 40, 80, 200):
        rows = help_rows({"quit": "ctrl+x"}, width)
        shown = plain(rows)
        for key in (*RACE_KEYS, *PAGE_KEYS, STOP):
            named = "Ctrl+X" if key.id == "quit" else label(key.keys)
            assert any(row.startswith(f"  {named} ") for row in shown), (width, key.id)
        assert width < 40 or max(map(cells, rows)) <= width


def lanes(demo: Demo):
    return demo.session.snapshot().lanes


def test_a_press_requests_the_next_value_from_what_was_requested_before_and_an_end_is_said():
    demo = Demo().go()
    assert next_values(lanes(demo), BATCH_SIZE, 1) == ({"cpu": 16, "gpu:0": 16}, "")
    demo.ask("cpu", "batch_size", 512)
    assert next_values(lanes(demo), BATCH_SIZE, 1) == ({"gpu:0": 16}, ""), "other lanes are not at the end"
    end = "batch size is already 512, and the data has 1000 examples"
    assert next_values(lanes(demo)[:1], BATCH_SIZE, 1) == ({}, end)
    demo.ask("cpu", "batch_size", 1)
    end = "batch size is already 1; it takes a whole number from 1"
    assert next_values(lanes(demo)[:1], BATCH_SIZE, -1) == ({}, end)


def test_advice_is_tried_on_a_lane_that_trains_and_on_a_gpu_first():
    demo = Demo().go().race(10)
    assert to_improve(analyse(demo.session.snapshot()), lanes(demo)) == "gpu:0"
    demo.fail("gpu:0")
    assert to_improve(analyse(demo.session.snapshot()), lanes(demo)) == "cpu"
    assert to_improve(analyse(demo.session.snapshot()), []) is None


def test_a_lane_that_ran_out_of_memory_starts_again_with_a_smaller_batch_or_when_it_is_meant():
    demo = Demo().go()
    demo.fail("gpu:0", kind="out_of_memory")
    both = list(lanes(demo))
    assert reachable(both, BATCH_SIZE, -1, focused=False) == both
    assert reachable(both, PREFETCH, 1, focused=True) == both
    assert reachable(both, BATCH_SIZE, 1, focused=False) == reachable(both, PREFETCH, 1, focused=False) == both[:1]
    not_gone_yet = [replace(lane, end=LaneEnd()) for lane in both]
    assert reachable(not_gone_yet, BATCH_SIZE, -1, focused=True) == not_gone_yet[:1]
