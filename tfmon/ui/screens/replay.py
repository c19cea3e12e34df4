"""A replay on the screen: the race as it was drawn then, a time line, and keys that move through it.

It draws what the race screen draws, of a session that a player fills. A key that would change a race says that
this is a replay; only the actions that `tfmon.ui.keys.watches` lists are let through.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, cast

from textual import events
from textual.binding import Binding, BindingType
from textual.screen import Screen

from tfmon import units
from tfmon.model.ports import Controls, ExperimentError, Experiments, Mark, ReplayControls, ReplayState, Runs
from tfmon.model.session import Session, Snapshot
from tfmon.ui.app import Ending, MonitorApp
from tfmon.ui.keys import PAGE_KEYS, RACE_KEYS, REPLAY_KEYS, Key, key_of, watches
from tfmon.ui.render.bars import message_of
from tfmon.ui.render.race import layout_of
from tfmon.ui.render.rows import Row, Span, cells, crop, fit
from tfmon.ui.render.style import DIM, KEY, LANE_COLOURS, STRONG, TEXT, TROUBLE, WARN, Charset, strong, to_ascii
from tfmon.ui.screens.race import RaceScreen
from tfmon.ui.screens.text import HelpPage

TAKEN = ("pause", "cursor.back", "cursor.on", "follow.now")
"""Keys of a race that a replay has for something else."""
REFUSED = {key.id for key in RACE_KEYS if not watches(key.action)}
"""Keys of a race that do nothing here; remapped, they do not clash with those that do."""
REFUSAL = "this is a replay of a race that is over: nothing in it can be changed"
MESSAGE_S = 5.0
PULL_S = 0.1


class ReplayScreen(RaceScreen, inherit_bindings=False):
    """The race screen of a replay. Thread: the app's only."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(key.keys, key.action if watches(key.action) else "refuse", key.help, id=key.id, show=False)
            for key in RACE_KEYS
            if key.id not in TAKEN
        ),
        *(Binding(key.keys, key.action, key.help, id=key.id, show=False) for key in REPLAY_KEYS),
    ]

    def __init__(self, monitor: ReplayApp) -> None:
        super().__init__(monitor)
        self._playback = monitor.playback
        self._bar = (0, 0)

    @property
    def leaves(self) -> str:
        """What the key does that ends tfmon here."""
        return "quit"

    def redraw(self) -> None:
        """Draw the race with the time line below it."""
        width, height = self.app.size
        snapshot, playback = self.monitor.snapshot, self._playback.state()
        layout = layout_of(self.monitor.analysis, self.monitor.view, width, max(1, height - 1))
        page = self.draw_race(width, max(1, height - 1))
        self.zones = tuple(zone for zone in page.zones if watches(zone.action))
        body = page.rows[: -1 if layout.keys.height else max(1, height - 2)]
        line, start, size = timeline_row(playback, width)
        self._bar = (start, size)
        message = "" if layout.status.height else message_of(self.monitor.view, snapshot)
        rows = (*body, line, keys_row(playback, self.monitor.view.keys, message, width, self.leaves))[:height]
        if self.monitor.view.charset == "ascii":
            rows = tuple(to_ascii(row) for row in rows)
        self.canvas.show(rows)

    def on_click(self, event: events.Click) -> None:
        """Go where the time line was clicked; Textual calls the race screen's handler as well, for the panes."""
        start, size = self._bar
        if event.screen_y == self.app.size.height - 2 and start <= event.screen_x < start + size:
            self._playback.go_to(time_of(self._playback.state(), event.screen_x - start, size))
            self.monitor.pull()

    def action_playback(self, method: str, *amount: int) -> None:
        """Have the player do something: the name of a method of `ReplayControls`, and how far."""
        getattr(self._playback, method)(*amount)
        self.monitor.pull()

    def action_go_to_end(self, direction: int) -> None:
        """Go to the end, or to the beginning."""
        playback = self._playback.state()
        self._playback.go_to(playback.to_ns if direction > 0 else playback.from_ns)
        self.monitor.pull()

    def action_toggle_follow(self) -> None:
        """Say how a replay is stopped."""
        pause = key_of("replay.pause", self.monitor.view.keys)
        self.monitor.say(f"a replay has nothing to follow: {pause} pauses it")

    def action_show_crossover(self) -> None:
        """Open the page of the crossover, if the recording has one up to this moment."""
        if self.monitor.analysis.curve is None:
            self.monitor.say("no crossover was measured up to this moment of the race")
        else:
            super().action_show_crossover()

    def action_refuse(self) -> None:
        """Show why the key does nothing here."""
        self.monitor.may_change()

    def action_show_help(self) -> None:
        """Open the help."""
        self.app.push_screen(ReplayHelp(self.monitor))


class ReplayHelp(HelpPage):
    """Lists the keys of a replay, and explains the numbers."""

    title_text = "Help: a replay"
    listed: Iterable[Key] = (*REPLAY_KEYS, *(key for key in RACE_KEYS if watches(key.action)))


class ReplayApp(MonitorApp):
    """A replay on the screen."""

    def __init__(
        self,
        session: Session,
        playback: ReplayControls,
        *,
        runs: Runs | None = None,
        table: Callable[[], str] = str,
        repeat: Callable[[], str] = str,
        theme: str = "textual-dark",
        lane_colours: str = LANE_COLOURS[0],
        characters: Charset | None = None,
        keymap: Mapping[str, str] | None = None,
    ) -> None:
        """Show the session that a player fills; `playback` moves the player, the rest is as for `MonitorApp`."""
        self.playback = playback
        self._ticked_s = time.monotonic()
        controls, experiments = cast(Controls, _NoControls(self)), cast(Experiments, _NoExperiments())
        super().__init__(
            session,
            controls,
            experiments,
            runs=runs,
            table=table,
            repeat=repeat,
            theme=theme,
            lane_colours=lane_colours,
            characters=characters,
            keymap={binding: keys for binding, keys in (keymap or {}).items() if binding not in REFUSED},
        )
        self.view = replace(self.view, replay=True)

    def get_default_screen(self) -> Screen[None]:
        """Return the race."""
        return ReplayScreen(self)

    def on_mount(self) -> None:
        """Draw, and play."""
        self._ticked_s = time.monotonic()
        super().on_mount()
        self.set_interval(PULL_S, self._play)

    def _play(self) -> None:
        if self.playback.state().playing:
            self.pull()

    def pull(self) -> None:
        """Play on, and draw what changed."""
        now_s = time.monotonic()
        elapsed_s, self._ticked_s = now_s - self._ticked_s, now_s
        self.playback.tick(elapsed_s)
        super().pull()

    def say(self, message: str, done: Callable[[Snapshot], bool] | None = None) -> None:
        """Show a line for a few seconds of the user's time, not of the race's."""
        self.view = replace(self.view, message=message, message_until_ns=2**63, message_done=done)
        self.set_timer(MESSAGE_S, lambda: self._unsay(message))
        self.pull()

    def _unsay(self, message: str) -> None:
        if self.view.message == message:
            self.view = replace(self.view, message="", message_until_ns=0)
            self.pull()

    @property
    def help_keys(self) -> tuple[Key, ...]:
        """The keys of a replay."""
        return (*REPLAY_KEYS, *(key for key in RACE_KEYS if watches(key.action)), *PAGE_KEYS)

    @property
    def tabs(self) -> tuple[str, ...]:
        """The pages of a race that is over; nothing can be profiled or examined any more."""
        return tuple(name for name in super().tabs if name not in ("profile", "doctor"))

    @property
    def may_change_lanes(self) -> bool:
        """Nothing can be changed."""
        return False

    def may_change(self) -> bool:
        """Return False, and say why."""
        self.say(REFUSAL)
        return False

    def _quit(self, ending: Ending) -> None:
        self.exit(ending)


class _NoControls:
    """Controls of a race that is over: each says that nothing can be changed."""

    def __init__(self, app: ReplayApp) -> None:
        self._replay = app

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return lambda *_args, **_more: self._replay.may_change()


class _NoExperiments:
    """Experiments on a race that is over."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        def refuse(*_args: object, **_more: object) -> None:
            raise ExperimentError(REFUSAL)

        return refuse


# ---------------------------------------------------------------- the two bottom lines

_FOOT = (
    ("replay.pause", "", 0), ("replay.back", "replay.on", 1), ("replay.step.back", "replay.step", 3),
    ("replay.slower", "replay.faster", 2), ("replay.mark.back", "replay.mark", 4),
)  # fmt: skip
_WORDS = ("", "5 s", "step", "speed", "mark")
_SIGNS = {"knob": ("┬", STRONG), "request": ("·", STRONG), "trouble": ("✗", strong(TROUBLE))}
_RANKS = {"request": 0, "knob": 1, "trouble": 2}
TOLD_NS = 4_000_000_000
"""How long the words of a mark are shown."""
LEAST_BAR = 10


def timeline_row(replay: ReplayState, width: int) -> tuple[Row, int, int]:
    """Return the line, and where its bar begins and how long it is (0 where there is no room for one)."""
    state = "end" if replay.at_end else f"replay ×{replay.speed}" if replay.playing else "paused"
    left: list[Span] = [(f" {state:<11}", strong(WARN)), (f"{_clock(replay, replay.at_ns)} ", STRONG)]
    right: list[Span] = [(f" {_clock(replay, replay.to_ns)}", TEXT)]
    words = [(f"  event {replay.event} of {replay.events}", DIM), *_told(replay)]
    for span in words:
        if cells(left) + cells(right) + cells([span]) + 3 * LEAST_BAR <= width:
            right.append(span)
    size = width - cells(left) - cells(right) - 1
    if size < LEAST_BAR:
        return fit(left, width), 0, 0
    return fit((*left, *bar(replay, size), *right), width), cells(left), size


def bar(replay: ReplayState, width: int) -> list[Span]:
    """Draw the time line: what was played, the current moment, what is left, and the marks."""
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


def time_of(replay: ReplayState, cell: int, width: int) -> int:
    """Return the moment of a cell of the bar."""
    return replay.from_ns + (replay.to_ns - replay.from_ns) * cell // max(1, width - 1)


def keys_row(replay: ReplayState, keys: Mapping[str, str], message: str, width: int, leaves: str = "quit") -> Row:
    """Return the keys of the replay, or the message."""
    if message:
        return fit([(f" {message}", strong(WARN))], width)
    for least in range(5, -1, -1):
        spans: list[Span] = [(" ", TEXT)]
        for (first, second, importance), word in zip(_FOOT, _WORDS, strict=True):
            if importance > least:
                continue
            pair = " ".join(key_of(one, keys) for one in (first, second) if one)
            word = word or ("pause" if replay.playing else "play")
            spans += [(pair, KEY), (f" {word}  ", DIM)]
        for binding, word in (("help", "help"), ("quit", leaves)):
            spans += [(key_of(binding, keys), KEY), (f" {word}  ", DIM)]
        if cells(spans) <= width:
            break
    return fit(spans, width)


def _told(replay: ReplayState) -> list[Span]:
    """Return what is wrong with the recording, or the words of the mark that was just passed."""
    if replay.note:
        return [(f"  {crop(replay.note, 60)}", strong(WARN))]
    found: list[Mark] = [mark for mark in replay.marks if replay.at_ns - TOLD_NS <= mark.at_ns <= replay.at_ns]
    return [(f"  {crop(found[-1].text, 40)}", STRONG)] if found else []


def _clock(replay: ReplayState, at_ns: int) -> str:
    """Write a moment as the header does: since the start signal, and before it as the time to go."""
    since_s = (at_ns - (replay.from_ns if replay.started_ns is None else replay.started_ns)) / 1e9
    return units.clock(since_s) if since_s > -1 else f"-{units.clock(-since_s)}"
