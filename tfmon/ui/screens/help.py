"""The help: every key and every number in a sentence; and the palette of all actions, or of the scenarios."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from textwrap import shorten
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.command import CommandList, CommandPalette, SimpleCommand, SimpleProvider
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

from tfmon.model.control_messages import BeginRace, Perform
from tfmon.model.session import Snapshot
from tfmon.ui.keys import BY_ID, Key, key_of, label, listed_keys
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.rows import BLANK, TEXT, Row, entry
from tfmon.ui.render.style import KEY, STRONG, to_ascii
from tfmon.ui.screens.lines import ScrollPage
from tfmon.ui.screens.page import Page, bindings_of, closer
from tfmon.ui.terminal import Guarded

MOST_OF_DOC = 150
"""Characters of a scenario's text in the list. `tfmon show` prints the whole text."""


class HelpPage(ScrollPage):
    """Lists the keys of a page first, then all others by their purpose, and explains every number."""

    BINDINGS: ClassVar[list[BindingType]] = [closer("help"), closer("choose")]
    still = True
    title_text = "Help"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        of = monitor.app.screen
        self._first = keys_of_page(of) if isinstance(of, Page) else ()
        self._of = of.tab or str(of.title_text) if isinstance(of, Page) else ""
        if monitor.view.replay:
            self.title_text = "Help: a replay"

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        monitor = self.monitor
        listed = listed_keys(replay=monitor.view.replay, sweep=monitor.sweep is not None)
        return help_rows(monitor.view.keys, width, listed, self._first, self._of)


def keys_of_page(page: Screen[Any]) -> tuple[Key, ...]:
    """Return the page's own keys, without the keys of every page."""
    common = {one.id for one in Page.BINDINGS if isinstance(one, Binding)}
    own = [(BY_ID[one.id], one) for one in bindings_of(type(page)) if one.id in BY_ID and one.id not in common]
    return tuple(replace(known, keys=one.key, action=one.action) for known, one in own)


def help_rows(
    keys: Mapping[str, str],
    width: int,
    listed: Iterable[Key] = listed_keys(replay=False, sweep=False),
    first: Iterable[Key] = (),
    name: str = "",
) -> list[Row]:
    """Return the help on keys and on numbers, with the page of that name `first`."""
    rows: list[Row] = []
    first = tuple(first)
    if first:
        rows += [BLANK, ((f"  On this page: {name}", STRONG),)]
        for key in first:
            rows += entry(label(keys.get(key.id, key.keys)), key.help, width, KEY)
    group, listed_ids = "", {key.id for key in first}
    for key in listed:
        if key.id in listed_ids:
            continue
        if key.group != group:
            group = key.group
            rows += [BLANK, ((f"  {group}", STRONG),)]
        rows += entry(key_of(key.id, keys), key.help, width, KEY)
    for heading, explained in SECTIONS:
        rows += [BLANK, ((f"  {heading}", STRONG),)]
        for one, meaning in explained:
            rows += entry(one, meaning, width, TEXT)
    return rows


class Palette(Guarded, CommandPalette):
    """Textual's palette without icon and moving bar. Its lists drop `reverse` in Textual 8.2: use bold."""

    CSS: ClassVar[str] = """
    Palette SearchIcon, Palette LoadingIndicator { display: none; }
    Palette CommandInput { padding-left: 1; }
    Palette.colourless CommandList > .option-list--option { text-style: none; }
    Palette.colourless CommandList > .option-list--option-highlighted { text-style: bold underline; }
    Palette.plain #--input { border: ascii $border; }
    Palette.plain CommandList { border: none; scrollbar-size-vertical: 0; }
    """

    def type_early(self, text: str) -> None:
        """Add to the input a text that was typed before it had the focus."""
        self.query_one(Input).insert_text_at_cursor(text)

    def on_unmount(self) -> None:
        """Drop the lines that Textual keeps: 8.2 keeps those of the last 1,024 widgets, gone or not."""
        for widget in self.widgets:
            widget.refresh()

    def on_mount(self) -> None:
        """Remember the widgets: Textual removes them before the palette."""
        self.widgets = [*self.walk_children(Widget, with_self=True)]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Ignore keys for the list before it has a layout, for which Textual 8.2 raises `KeyError`."""
        if action in ("command_list", "cursor_down") and not self.query_one(CommandList).size.height:
            return False
        return super().check_action(action, parameters)


def palette_of(monitor: Monitor) -> Palette:
    """Return the palette with all actions of the race's keys, after the actions of the current page."""
    keys, race, shown = monitor.view.keys, monitor.screen, monitor.app.screen
    actions_of = [(race, *one) for one in _actions(race, keys)]
    if shown is not race:
        actions_of = [
            *((shown, _line(key.help, keys.get(key.id, key.keys)), key.action)
              for key in keys_of_page(shown) if not key.id.startswith("move.")),
            *actions_of,
        ]  # fmt: skip
    actions: dict[str, tuple[Screen[Any], str]] = {}
    for place, text, action in actions_of:
        if action not in ("open('palette')", "show_tab('race')"):
            actions.setdefault(text, (place, action))
    commands = [
        SimpleCommand(text, partial(screen.call_next, screen.run_action, action))
        for text, (screen, action) in actions.items()
    ]
    return _list_of(commands, "What do you want to do?", monitor)


def scenarios_of(monitor: Monitor) -> Palette:
    """Return the list of the scenarios. Choosing one starts its race."""
    before = monitor.snapshot.race

    def race(scenario: str) -> None:
        def change() -> None:
            monitor.source.ask(Perform("end_series"))
            monitor.source.ask(BeginRace(scenario))

        monitor.say(f"starting the race of {scenario}…", lambda snapshot: snapshot.race.number != before.number)
        monitor.work(change)

    commands = []
    for one in monitor.source.scenarios():
        note = " (this race)" if one.name == before.scenario else ""
        about = f"{shorten(one.doc, MOST_OF_DOC, placeholder='…')} ({one.origin})".lstrip()
        commands.append(SimpleCommand(f"{one.name}{note}: {one.title}", partial(race, one.name), about))
    return _list_of(commands, "Which scenario do you want to race?", monitor)


def _list_of(commands: Iterable[SimpleCommand], question: str, monitor: Monitor) -> Palette:
    if monitor.view.charset == "ascii":
        commands = [one._replace(name=_ascii(one.name), help_text=_ascii(one.help_text or "")) for one in commands]
    # As Textual's own `search_commands` does; its type says a class.
    provider: Any = SimpleProvider(monitor.app.screen, list(commands))
    palette = Palette([provider], placeholder=question)
    palette.set_class(monitor.view.charset == "ascii", "plain")
    palette.set_class(monitor.app.no_color, "colourless")
    return palette


def _ascii(text: str) -> str:
    return to_ascii(((text, TEXT),))[0][0]


def _actions(screen: Screen[Any], keys: Mapping[str, str]) -> list[tuple[str, str]]:
    lines = []
    for binding in type(screen).BINDINGS:
        if isinstance(binding, Binding) and binding.action != "refuse":
            tab = f"{binding.action[10:-2]}: " if binding.action.startswith("show_tab(") else ""
            shown = _line(f"{tab}{binding.description}", keys.get(binding.id or "", binding.key))
            lines.append((shown, binding.action))
    themes = [] if screen.app.no_color else sorted(screen.app.available_themes)
    return lines + [(f"colours: theme {name}", f"app.set_theme({name!r})") for name in themes]


def _line(help: str, keys: str) -> str:
    return f"{help}  ({label(keys)})"


# fmt: off
IN_PANE = (
    ("examples/s", "Throughput: examples whose step was done, over wall time between two points at which the "
     "lane had waited for its device. Over the steady windows of the last 5 s that the lane trained; steps/s "
     "are of the same windows."),
    ("step", "Time from the end of one step to the end of the next: the median (p50), then what 95 % and 99 % "
     "of the steps stay under, since the last knob change. From the lane's histogram, to within 0.55 %."),
    ("time", "Where the time of a step goes, in percent, since the last knob change: waiting for a batch (█ "
     "input), copying it to the device (▚ copy), starting the step (▓ dispatch), computing (▒ compute), "
     "tracing graphs again (▞ retrace), reading the loss (═ sync), tfmon's own work (·), and the rest (░). "
     "Timed in the lane, with a step between two barriers once a second; on the CPU a profile of a few steps "
     "tells dispatch from compute."),
    ("bottleneck", "What limits the lane, by the same figures; the page of the lane shows all of them and what "
     "may help."),
    ("loss", "Loss of the first step that was reported, and of the last; read at the end of a window of 0.2 s."),
    ("done", "Steps and examples since the lane began to race, and which share of its time is discarded: the "
     "first 20 ms after a switch to the lane, knob changes, pauses, traces, garbage collections, swapping."),
    ("knobs", "Settings in effect, as the lane reported; first, with ≠, those in which the lanes differ. What is "
     "requested and not yet in effect is dim: → 20 requested."),
    ("cpu", "CPU time of the lane and all its children over wall time, each second; 100 % is one core. In turns, "
     "over the time in its slices alone. The "
     "limit is the cores it may use. From /proc or psutil."),
    ("memory", "Memory that no other process shares, summed over the lane and its children (1 MiB = 2^20 bytes)."),
    ("gpu", "Share of the last second in which the GPU ran a kernel, of any process, and its power in watts of "
     "the limit; of several GPUs, the share of each. From the driver: NVML, on a Mac ioreg."),
    ("gpu mem", "Memory used by the lane, as the driver says, or how else that is known, on each GPU; what "
     "TensorFlow's allocator has allocated of it, and its peak."),
    ("refused", "Why the last knob could not be changed, for 20 s; the lane trains on as before."),
    ("note", "Lines of the lane's reports that could not be read, and were skipped."),
    ("chart", "Examples/s, or what v chooses, over 1, 5 or 30 minutes (h), on one scale for all lanes or one "
     "each (a). A column is the mean over its time; step times are quantiles of each second. "
     "A gap: nothing was measured. ┬: a knob changed."),
    ("n/a", "Not known, and why. tfmon never shows 0 for what it does not know. stale: the reading is too old."),
)

AROUND = (
    ("tfmon", "What this monitor takes itself: percent of one core, all its threads and its sampling included, "
     "over the last 10 s."),
    ("trying", "What e tries on a lane: the gain in examples/s of the new setting over the old one, from "
     "alternating slices, with its 95 % interval, and how many pairs of slices of those that are needed."),
    ("in about", "When the first verdict comes: the rounds that its interval still needs, each as long as the "
     "rounds so far."),
    ("Result", "What the race came to, once every lane is over. It does not change any more; r races again."),
    ("0:42", "Time since all lanes got the start signal; beside a lane's name, how long its state has lasted."),
    ("training", "Taking turns, one lane trains for a slice (--slice) while the others are suspended; then the "
     "next does."),
    ("cores", "Cores that the lanes may use, by affinity and the quotas of control groups, of those of the "
     "machine."),
    ("machines", "How many the lanes train on, whatever their hosts are called, and how many are lost. In rounds: "
     "lanes of different machines train at the same time, and a round begins when all have had their slice."),
    ("× faster", "Throughput of the fastest lane over that of another, since each one's last knob change. "
     "Taking turns, each round gives one ratio (a pair); shown is their trimmed mean, and a winner only when "
     "the interval excludes 1."),
    ("the same", "The whole interval lies within the margin (--margin, ±3 %). Not known yet: it lies on neither "
     "side; the time beside it is predicted from the scatter so far. At the end that is too close to call."),
    ("95 % CI", "Where the ratio lies with 95 % certainty; what two equal processes differ by is a part of it. "
     "It is valid at every look, or where the length of the race is known, for that length or at its end. "
     "Always valid: it holds whenever you look and stop. Valid for this length: it holds at every look within "
     "--seconds, and is narrower towards the end. Valid at the end: it holds at one look, and is the narrowest."),
    ("contended", "All lanes train at once and compete for the cores: not what each would do by itself."),
    ("▓▓░░", "How far the race is, where --seconds or --steps says how long it lasts."),
)

ON_LANE_PAGE = (
    ("discarded", "Share of the time that does not count, by reason, since the lane began to race."),
    ("processes", "How many processes of the lane raced, one after the other; see --fresh."),
    ("step call", "Share of the time in the step's call in which an operation computes, on the CPU; the rest "
     "is dispatch. From a profile of a few steps."),
    ("profiled", "Which layers had allocated the memory at its peak; from a profile of a few steps."),
    ("round trip", "From tfmon to the agent on another machine and back: the quickest tenth of the pings."),
    ("clock offset", "What is added to the stamps of another machine to make them those of this one, and by how "
     "much that can be wrong."),
    ("agent", "CPU, in percent of one core, and memory that tfmon's agent takes on another machine."),
    ("this lane", "Share of the GPU's time that the lane's own processes took, over the last 2 s; from the "
     "driver."),
    ("clocks", "Clock of the GPU's processors now and at most, in MHz, and what limits it; from the driver."),
    ("activity", "What the GPU does while it is busy, in percent of what its parts can do: time with a kernel, "
     "multiprocessors with work, room for warps that is filled, tensor cores, bandwidth of its memory, units for "
     "32, 16 and 64 bits. From the driver, for Hopper and later."),
    ("PCIe", "Bytes per second to and from the GPU over the last second, and the link they go over."),
    ("ECC", "Errors of the GPU's memory that could not be corrected, since the driver was loaded."),
    ("others", "CPU used by programs that are neither tfmon nor its lanes, in percent of one core, each second."),
    ("swap", "Memory read from and written to disk, in bytes per second: it slows down whatever it hits."),
    ("steal", "Time of a core that a hypervisor gave to other machines, in percent of one core."),
    ("throttled", "Share of its periods in which a container had used up its quota of CPU time."),
    ("for a core", "Share of the last 10 s in which some process waited for a core; Linux calls it pressure."),
    ("power", "Watts of the GPU."),
)
# fmt: on

SECTIONS = (("In a pane", IN_PANE), ("Above and below", AROUND), ("On the page of a lane", ON_LANE_PAGE))
