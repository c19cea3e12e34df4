"""Base of all screens, and of the pages: tabs at the top, rows of text, a message, and the keys at the bottom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from tfmon.errors import TfmonError
from tfmon.model.control_messages import BeginTuning, ChangeKnob, ControlMessage, Perform
from tfmon.model.knobs import KnobError, find, short_name
from tfmon.model.lane_state import LaneState
from tfmon.model.ports import ANSWER_S
from tfmon.model.session import Snapshot
from tfmon.ui.keys import BY_ID, key_of, label
from tfmon.ui.lines import Lines, StyledScreen
from tfmon.ui.monitor import LEAVE, Monitor
from tfmon.ui.render.bars import message_of, refusal_line
from tfmon.ui.render.layout import Hint, hint_row, tab_row
from tfmon.ui.render.race import one_line
from tfmon.ui.render.rows import Row, cells, cut, fit, plain, spread
from tfmon.ui.render.style import STRONG, WARN, strong, to_ascii
from tfmon.ui.source import (
    may_start_again,
    next_values,
    no_knob,
    reachable,
    running_line,
    targets,
    titles,
    to_improve,
    with_failures,
)

SCROLLBAR_CELLS = 1
CHANGING = ("lane.stack", "lane.kill", "try", "undo", "run.delete", "move.left", "move.right")
"""Keys that are hidden if they could not change anything."""
FRAME_ROWS = 4


def bound(binding: str, action: str = "", keys: str = "", word: str = "") -> Binding:
    """Return the binding of an id of `tfmon.ui.keys`. With a `word`, it is displayed in the line of keys."""
    key = BY_ID[binding]
    return Binding(keys or key.keys, action or key.action, word or key.help, bool(word), id=key.id)


def bindings_of(kind: type[Screen[Any]]) -> list[Binding]:
    """Return the bindings of a screen that have an id, its own before its base classes'."""
    found: dict[str, Binding] = {}
    for base in kind.__mro__:
        for one in vars(base).get("BINDINGS", ()):
            if isinstance(one, Binding) and one.id:
                found.setdefault(one.id, one)
    return list(found.values())


def closer(binding: str) -> Binding:
    """Return the binding that closes a page with the key that opened it."""
    return bound(binding, "dismiss")


class MonitorScreen(StyledScreen[str | None]):
    """A screen that shows the state of a monitor. Thread: the app's only."""

    still = False
    """Whether the screen changes only on a key, so that it need not be drawn twice a second."""

    def __init__(self, monitor: Monitor) -> None:
        super().__init__()
        self.monitor = monitor

    def redraw(self) -> None:
        """Show the latest snapshot."""
        raise NotImplementedError

    def on_resize(self) -> None:
        self.redraw()

    def notify_style_update(self) -> None:
        """Draw in the colours of another theme."""
        super().notify_style_update()
        self.call_next(self.redraw)

    def on_screen_resume(self) -> None:
        """Show what happened while another screen was shown."""
        self.redraw()

    def plain_text(self) -> str:
        """Return the text of the screen, without its styles."""
        return "\n".join(line for lines in self.query(Lines) for line in plain(lines.rows))

    def action_show_tab(self, name: str) -> None:
        """Show a page beside the race, or the race itself."""
        if name == LEAVE and self.monitor.source.detachable and self.monitor.asks("quit"):
            self.monitor.leave()
        elif name in self.monitor.view.tabs:
            self.monitor.show(name)

    def action_profile_lane(self) -> None:
        if self.monitor.may_change() and "profile" in self.monitor.view.tabs:
            several = self.monitor.view.focused is None and len(self.monitor.snapshot.lanes) > 1
            self.monitor.show("profiles" if several else "profile")

    def action_open(self, name: str) -> None:
        """Open a page that closes again: one of `tfmon.ui.app.make_screen`."""
        self.monitor.open(name)

    def action_save_picture(self) -> None:
        self.monitor.save_picture(self.plain_text())

    def action_save_report(self) -> None:
        self.monitor.save_report()

    def action_quit(self) -> None:
        self.monitor.quit()

    def may_act(self) -> bool:
        """Return whether keys may act on the lanes now; if not, say why: it may not change, or is measured."""
        if not self.monitor.may_change():
            return False
        if running := running_line(self.monitor.snapshot, self.monitor.view.keys):
            self.monitor.say(running)
        return not running

    def action_step_knob(self, name: str, direction: int) -> None:
        """Request the next value of a knob, or the previous one, and report changes that the panes do not show."""
        if not self.may_act():
            return
        try:
            knob = find(self.monitor.snapshot.race.knobs, name)
        except KnobError:
            self.monitor.say(no_knob(self.monitor.snapshot, name))
            return
        chosen = targets(self.monitor.snapshot.lanes, self.monitor.view.focused)
        lanes = reachable(chosen, knob, direction, focused=self.monitor.view.focused is not None)
        again = [lane for lane in lanes if may_start_again(lane)]
        new, end = next_values(lanes, knob, direction)
        for lane, value in new.items():
            self.monitor.source.send(ChangeKnob(lane, name, value))
        if end:
            self.monitor.say(end)
        elif again:
            self.monitor.say(f"starting again with another {short_name(name)}: {titles(again)}")
        elif new and knob.kind == "restart":
            self.monitor.say(f"{short_name(name)} takes effect with a restart: {titles(chosen)}")
        else:
            self.monitor.pull()

    def run_experiment(self, command: ControlMessage) -> str | None:
        """Start, undo or end an experiment and return the answer, or display why that is impossible."""
        try:
            answer = self.monitor.source.ask(command, ANSWER_S)
        except TfmonError as error:
            self.monitor.say(error.line)
            return None
        self.monitor.pull()
        return answer

    def try_advice(self, lanes: Sequence[LaneState]) -> None:
        """Try the most promising change on the lane that most likely needs it."""
        lane = to_improve(self.monitor.analysis, lanes) if self.may_act() else None
        if lane is not None:
            self.run_experiment(BeginTuning(lane, everything=False))

    def action_undo(self) -> None:
        """Undo the change that was kept last."""
        if self.monitor.may_change() and (undone := self.run_experiment(Perform("undo"))) is not None:
            self.monitor.say(f"undone: {undone}")


class Page(MonitorScreen):
    """A page with tabs, title and keys. Subclasses implement `body`. No `abc.ABC`: Textual has a metaclass."""

    AUTO_FOCUS = ".body"
    BINDINGS: ClassVar[list[BindingType]] = [
        bound("help", word="help"),
        bound("close", word="back"),
        bound("picture"),
        closer("quit"),
        bound("report"),
        bound("palette"),
        bound("lane.detail", keys="i"),
        bound("lane.log"),
        bound("knobs"),
        bound("lane.profile"),
        bound("gpus"),
        bound("doctor"),
        bound("runs"),
    ]
    BLANK = True
    """The widgets cover the page. Textual 8.2 would keep the lines below them, 160 kB for every page."""
    tab = ""
    title_text = ""

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self.top, self.foot = Lines(), Lines(classes="foot")
        self.set_class(monitor.view.charset == "ascii", "ascii")

    def compose(self) -> ComposeResult:
        yield self.top
        yield from self.content()
        yield self.foot

    def content(self) -> ComposeResult:
        """Yield the widgets between the title and the message."""
        raise NotImplementedError

    def on_mount(self) -> None:
        self.redraw()

    def key(self, binding: str) -> str:
        return key_of(binding, self.monitor.view.keys)

    def redraw(self) -> None:
        if not self.is_mounted:
            return
        monitor, snapshot = self.monitor, self.monitor.snapshot
        monitor.view = with_failures(monitor.view, snapshot, ())
        width, height = self.app.size
        self.fill(snapshot, width - SCROLLBAR_CELLS)
        self.paint(self.top, [self._top(width), self._title(width), *self.above(snapshot, width)], width)
        message: Row = ((f" {self.message(snapshot)}", strong(WARN)),)
        self.paint(self.foot, [*self.below(width, height), message, hint_row(self.hints(), width)], width)

    def paint(self, lines: Lines, rows: Sequence[Row], width: int) -> None:
        """Show rows in a widget of the page."""
        fitted = [fit(row, width) for row in rows]
        lines.show([to_ascii(row) for row in fitted] if self.monitor.view.charset == "ascii" else fitted)

    def fill(self, snapshot: Snapshot, width: int) -> None:
        """Bring the content up to date; only what changed is written."""
        raise NotImplementedError

    def above(self, snapshot: Snapshot, width: int) -> list[Row]:
        """Return the rows between the title and the content."""
        return []

    def below(self, width: int, height: int) -> list[Row]:
        """Return the rows between the content and the message."""
        return []

    def _top(self, width: int) -> Row:
        return tab_row(self.monitor.view.tabs, self.tab, self.monitor.view.keys, width)

    def _title(self, width: int) -> Row:
        """Return the title, and beside it the race in one line if there is room and the page is not still."""
        title: Row = ((f" {self.title_text}", STRONG),)
        if self.still:
            return title
        race = one_line(self.monitor.analysis, width)
        text = "".join(part for part, _ in race).rstrip()
        if cells(title) + len(text) + 4 > width:
            return title
        return spread(title, cut(race, 0, len(text) + 1), width)

    def hints(self) -> list[Hint]:
        """Return the line of keys of the page: its own, then the keys of every page."""
        idle = CHANGING if self.monitor.refusal else ()
        shown = (one for one in bindings_of(type(self)) if one.show and one.id not in idle)
        keys = self.monitor.view.keys
        return [Hint(label(keys.get(one.id or "", one.key)), one.description, one.action) for one in shown]

    def message(self, snapshot: Snapshot) -> str:
        return message_of(self.monitor.view, snapshot) or refusal_line(snapshot)

    async def action_dismiss(self, result: str | None = None) -> None:
        """Go back: from a page that has a tab to the race, from another one to where it was opened."""
        if self.tab:
            self.monitor.show("race")
        else:
            self.dismiss(result)


class OneLanePage(Page):
    """A page of one lane; a key goes to the next one."""

    BINDINGS: ClassVar[list[BindingType]] = [bound("move.next", word="next lane"), bound("move.previous")]

    @property
    def lane(self) -> LaneState | None:
        """The displayed lane, or None."""
        lanes = self.monitor.snapshot.lanes
        return lanes[self.monitor.lane % len(lanes)] if lanes else None

    def start_over(self) -> None:
        """Show the page of another lane from where such a page begins."""
        raise NotImplementedError

    def action_turn(self, direction: int) -> None:
        self.monitor.lane += direction
        self.start_over()
        self.redraw()
