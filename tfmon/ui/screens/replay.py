"""The screen of a replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from textual import events
from textual.binding import BindingType

from tfmon import units
from tfmon.model.ports import ReplayState
from tfmon.ui.keys import RACE_KEYS, REPLAY_KEYS, key_of, watches
from tfmon.ui.lines import Lines
from tfmon.ui.messages import TimelineClicked
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.bars import message_of
from tfmon.ui.render.layout import Hint, hint_row
from tfmon.ui.render.race_frame import PARTS, RaceFrame
from tfmon.ui.render.rows import DIM, TEXT, Row, Span, cell_len, cells, crop, fit
from tfmon.ui.render.style import STRONG, TROUBLE, WARN, strong
from tfmon.ui.screens.page import bound
from tfmon.ui.screens.race_screen import RaceScreen

PULL_S = 0.1
TAKEN = "pause"
_FOOT = (
    ("replay.back", "replay.on", "5 s"), ("replay.slower", "replay.faster", "speed"),
    ("replay.step.back", "replay.step", "step"), ("replay.mark.back", "replay.mark", "mark"),
)  # fmt: skip
_SIGNS = {"knob": ("┬", STRONG), "request": ("·", STRONG), "trouble": ("✗", strong(TROUBLE))}
_RANKS = {"request": 0, "knob": 1, "trouble": 2}
TOLD_NS = 4_000_000_000
LEAST_BAR = 10


class Timeline(Lines):
    """The time line of a replay. A click goes to a moment."""

    def on_click(self, event: events.Click) -> None:
        self.post_message(TimelineClicked(event.x))


class ReplayScreen(RaceScreen, inherit_bindings=False):
    """The race screen of a replay. Thread: the app's only."""

    parts = (*PARTS[:-1], "timeline", "keys")
    foot = 1
    BINDINGS: ClassVar[list[BindingType]] = [
        *(bound(key.id, "" if watches(key.action) else "refuse") for key in RACE_KEYS if key.id != TAKEN),
        *(bound(key.id) for key in REPLAY_KEYS),
    ]

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        assert monitor.source.playback is not None, "nothing is played"
        self._playback = monitor.source.playback
        self._bar = (0, 0)

    def on_mount(self) -> None:
        self.set_interval(PULL_S, self.monitor.play)

    def on_unmount(self) -> None:
        if self.monitor.below is not None:
            self.monitor.close()

    def part(self, name: str) -> Lines:
        return Timeline(id=name) if name == "timeline" else super().part(name)

    def draw(self) -> RaceFrame:
        width, height = self.app.size
        frame, playback, view = super().draw(), self._playback.state(), self.monitor.view
        line, start, size = timeline_row(playback, width)
        self._bar = (start, size)
        message = "" if frame.layout.status else message_of(view, self.monitor.snapshot)
        leaves = "quit" if self.monitor.below is None else "back"
        bottom = [line, keys_row(playback, view.keys, message, width, leaves)]
        lines = frame.parts.get("lines", ())
        if not frame.layout.keys:
            lines = lines[: max(1, height - 2)]
        below = {"timeline": bottom[:1], "keys": bottom[1:]} if height > 2 else {}
        return replace(frame, parts={**frame.parts, "lines": lines, **below})

    def on_timeline_clicked(self, message: TimelineClicked) -> None:
        start, size = self._bar
        if start <= message.cell < start + size:
            self._playback.go_to(_time_of(self._playback.state(), message.cell - start, size))
            self.monitor.pull()

    def action_playback(self, method: str, *amount: int) -> None:
        getattr(self._playback, method)(*amount)
        self.monitor.pull()

    def action_go_to_end(self, direction: int) -> None:
        playback = self._playback.state()
        self._playback.go_to(playback.to_ns if direction > 0 else playback.from_ns)
        self.monitor.pull()

    def action_refuse(self) -> None:
        self.monitor.may_change()

    def action_show_tab(self, name: str) -> None:
        if name == "runs" and self.monitor.below is not None:
            self.monitor.quit()
        else:
            super().action_show_tab(name)

    def action_focus_all(self) -> None:
        view = self.monitor.view
        if self.monitor.below is not None and view.focused is None and not view.zoomed:
            self.monitor.quit()
        else:
            super().action_focus_all()


def timeline_row(replay: ReplayState, width: int) -> tuple[Row, int, int]:
    """Return the line, and the start and length of its bar."""
    speed = "" if replay.speed == 1 and not replay.playing else f" ×{replay.speed}"
    state = "end" if replay.at_end else f"{'replay' if replay.playing else 'paused'}{speed}"
    begin, now, end = (_clock(replay, at_ns) for at_ns in (replay.from_ns, replay.at_ns, replay.to_ns))
    longest = max(len(begin), len(end))
    left: list[Span] = [(f" {state:<11}", strong(WARN)), (f"{now:>{longest}}  ", STRONG), (f"{begin} ", TEXT)]
    right: list[Span] = [(f" {end}", TEXT)]
    events, problem = (
        f"  event {replay.event:>{len(str(replay.events))}} of {replay.events}",
        crop(replay.note, 60),
    )
    marks = [(mark.at_ns, crop(mark.text, 40)) for mark in replay.marks]
    passed = [text for at_ns, text in marks if replay.at_ns - TOLD_NS <= at_ns <= replay.at_ns]
    told, style = (problem, strong(WARN)) if problem else (passed[-1] if passed else "", STRONG)
    longest = cell_len(problem) if problem else max((cell_len(text) for _, text in marks), default=0)
    for part, size in (((events, DIM), cell_len(events)), ((f"  {told}", style), longest + 2)):
        if cells(left) + cells(right) + size + 3 * LEAST_BAR <= width:
            right += fit([part], size)
    size = width - cells(left) - cells(right) - 1
    if size < LEAST_BAR:
        return fit(left[:2], width), 0, 0
    return fit((*left, *bar(replay, size), *right), width), cells(left), size


def bar(replay: ReplayState, width: int) -> list[Span]:
    """Draw the time line with its marks."""
    at = cell_of(replay, replay.at_ns, width)
    spans: list[Span] = [("━", TEXT) if place < at else ("─", DIM) for place in range(width)]
    for mark in sorted(replay.marks, key=lambda mark: _RANKS[mark.kind]):
        spans[cell_of(replay, mark.at_ns, width)] = _SIGNS[mark.kind]
    spans[at] = ("█", strong(WARN))
    return spans


def cell_of(replay: ReplayState, at_ns: int, width: int) -> int:
    """Return the cell of a moment on a bar of that width."""
    span_ns = max(1, replay.to_ns - replay.from_ns)
    return max(0, min(width - 1, (at_ns - replay.from_ns) * (width - 1) // span_ns))


def _time_of(replay: ReplayState, cell: int, width: int) -> int:
    return replay.from_ns + (replay.to_ns - replay.from_ns) * cell // max(1, width - 1)


def keys_row(replay: ReplayState, keys: Mapping[str, str], message: str, width: int, leaves: str = "quit") -> Row:
    """Return the keys of the replay, or the message."""
    if message:
        return fit([(f" {message}", strong(WARN))], width)
    rows = (("replay.pause", "pause" if replay.playing else "play"), *_FOOT, ("help", "help"), ("quit", leaves))
    hints = [Hint(" ".join(key_of(one, keys) for one in pair), word) for *pair, word in rows]
    return hint_row(tuple(hints), width)


def _clock(replay: ReplayState, at_ns: int) -> str:
    return units.signed_clock((at_ns - (replay.from_ns if replay.started_ns is None else replay.started_ns)) / 1e9)
