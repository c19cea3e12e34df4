"""All keys: ids, how they are written, the palette, the help; what is read only; and what W saves."""

from __future__ import annotations

import importlib
import pkgutil
import re
from dataclasses import replace
from itertools import combinations

import pytest
from support.ui import CPU_MACHINE, FakeRuns, hosts_demo, racing_demo
from textual.binding import Binding
from textual.command import CommandList, CommandPalette
from textual.screen import Screen
from textual.widgets import Input

import tfmon.ui.screens
from tfmon.model.events import BadLine, RecordingChanged
from tfmon.model.lane_events import KnobRefused
from tfmon.model.race import RecordingState
from tfmon.model.readings import HostSample
from tfmon.ui.keys import KEYS, PAGE_KEYS, RACE_KEYS, STOP, key_of, label, without_arrows
from tfmon.ui.render import hosts
from tfmon.ui.render.rows import cells, plain
from tfmon.ui.render.style import TEXT, to_ascii
from tfmon.ui.screens.help import IN_PANE, ON_LANE_PAGE, SECTIONS, help_rows
from tfmon.ui.screens.lane import _of_gpu, _of_host, _of_lane, _of_machine
from tfmon.ui.screens.race import RaceScreen

from .drawn import frame
from .pilot import app_of, press, shown, until


def screens() -> list[type[Screen]]:
    for module in pkgutil.iter_modules(tfmon.ui.screens.__path__, "tfmon.ui.screens."):
        importlib.import_module(module.name)

    def below(kind: type) -> set[type]:
        return {kind}.union(*(below(one) for one in kind.__subclasses__()))

    return sorted(
        (one for one in below(Screen) if one.__module__.startswith("tfmon.")), key=lambda one: one.__name__
    )


def test_every_binding_of_ours_has_an_id_but_those_that_edit_text():
    assert {"RaceScreen", "KnobPage", "LogPage", "ReplayScreen"} <= {screen.__name__ for screen in screens()}
    for screen in screens():
        bindings = [one for one in screen.__dict__.get("BINDINGS", ()) if isinstance(one, Binding)]
        fixed = {one.key for one in bindings if one.id is None and one.action != "refuse"}
        assert fixed <= {"backspace", "ctrl+u"}, screen
        assert {one.id for one in bindings if one.id is not None} <= {key.id for key in KEYS}, screen


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


async def test_a_terminal_without_arrows_names_keys_in_words():
    app = app_of(racing_demo(), characters="ascii")
    async with app.run_test(size=(100, 30)) as pilot:
        await press(pilot, "k")
        assert "Left Right change" in shown(pilot) and "Up Down choose" in shown(pilot)
        await press(pilot, "down", "left", "question_mark")
        assert "  Down         down by a line" in shown(pilot)


def options(pilot) -> list[str]:
    commands = pilot.app.screen.query_one(CommandList)
    return [str(commands.get_option_at_index(place).prompt) for place in range(commands.option_count)]


async def search(pilot, words: str = "") -> None:
    """Type words once the palette listens, and wait for what is found."""
    await until(pilot, lambda: isinstance(pilot.app.focused, Input))
    await press(pilot, *words)
    await until(pilot, lambda: options(pilot) and words in options(pilot)[0])


async def test_it_lists_every_action_with_its_key():
    async with app_of(racing_demo(), characters="ascii").run_test(size=(120, 80)) as pilot:
        for key in ("colon", "ctrl+p"):
            await press(pilot, key)
            await search(pilot)
            await until(pilot, lambda: pilot.app.screen.has_class("-ready"))
            listed = options(pilot)
            for one in RACE_KEYS:
                if one.id != "palette":
                    ((words, _),) = to_ascii(((f"{one.help}  ({key_of(one.id, without_arrows())})", TEXT),))
                    assert any(words in text for text in listed), one.id
            strips = pilot.app.screen._compositor.render_strips()
            assert "".join(segment.text for strip in strips for segment in strip).isascii()
            await press(pilot, "escape")
            await until(pilot, lambda: isinstance(pilot.app.screen, RaceScreen))


async def test_what_is_chosen_is_done_over_the_race_and_over_a_page():
    demo = racing_demo()
    app = app_of(demo)
    async with app.run_test(size=(120, 36)) as pilot:
        await press(pilot, "colon")
        await search(pilot, "prefetch:")
        await press(pilot, "enter")
        await until(pilot, lambda: demo.controls.calls)
        assert demo.controls.calls[0] == ("set_knob", "cpu", "prefetch", 1)
        await until(pilot, lambda: isinstance(app.screen, RaceScreen))
        await press(pilot, "question_mark", "colon")
        await until(pilot, lambda: isinstance(app.screen, CommandPalette))
        await search(pilot, "theme nord")
        before = app.monitor.palette["text"].bgcolor
        await press(pilot, "enter")
        await until(pilot, lambda: app.theme == "nord" and app.monitor.palette["text"].bgcolor != before)
        await press(pilot, "colon")
        await search(pilot, "all the knobs")
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


# ---------------------------------------------------------------- the help

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
    rows = plain(frame(demo, 160, 50).rows)
    labels = {match[1] for row in rows for match in re.finditer(r"│ ([a-z][a-z ]{0,9}?) {1,7}(?=\S)", row)}
    expected = "step time bottleneck loss done knobs cpu memory gpu note refused"
    assert set(expected.split()) <= labels
    assert labels <= {name for name, _ in IN_PANE}


def test_every_reading_on_the_page_of_a_lane_is_explained_or_says_itself_what_it_is():
    demo = racing_demo()
    snapshot = demo.session.snapshot()
    lane, gpu = replace(snapshot.lane("gpu:0"), computing_share=0.5, process=2), snapshot.gpus[0]
    host = HostSample(at_ns=0, cpu_pct=1.0, memory_used_bytes=1.0, memory_total_bytes=2.0)
    remote = hosts_demo().session.snapshot()
    there = (*hosts.lines(remote, remote.lanes[1]), *_of_machine(remote.machine_of(remote.lanes[1])))
    shown = {name for name, _ in (*_of_lane(lane), *_of_gpu(lane, gpu), *_of_host(host), *there)}
    assert {"cpu", "discarded", "clocks", "steal", "round trip"} <= shown
    names = [name for _, section in SECTIONS for name, _ in section]
    explained = set(names)
    assert len(explained) == len(names), "once"
    assert shown <= explained | SAYS_ITSELF | EXPLAINED_WITH
    assert {name for name, _ in ON_LANE_PAGE} <= shown
    assert not explained & SAYS_ITSELF


def test_the_help_lists_every_key_and_fits():
    for width in (24, 40, 80, 200):
        rows = help_rows({"quit": "ctrl+x"}, width)
        shown = plain(rows)
        for key in (*RACE_KEYS, *PAGE_KEYS, STOP):
            label = "Ctrl+X" if key.id == "quit" else key.label
            assert any(row.startswith(f"  {label} ") for row in shown), (width, key.id)
        assert width < 40 or max(map(cells, rows)) <= width
