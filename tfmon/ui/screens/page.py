"""Base classes of screens and pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual.binding import Binding
from textual.screen import Screen

from tfmon.errors import TfmonError
from tfmon.model.knobs import KnobError, find, short_name
from tfmon.model.lane_state import LaneState
from tfmon.model.ports import ANSWER_S
from tfmon.model.requests import Command
from tfmon.ui.keys import BY_ID
from tfmon.ui.lines import Lines, StyledScreen
from tfmon.ui.monitor import LEAVE, Monitor
from tfmon.ui.render.rows import plain
from tfmon.ui.source import (
    effect,
    may_start_again,
    next_values,
    no_knob,
    reachable,
    running_line,
    targets,
    titles,
    to_improve,
)


def bound(binding: str, action: str = "", keys: str = "", word: str = "") -> Binding:
    """Return the binding of an id; `word` is displayed below the page."""
    key = BY_ID[binding]
    return Binding(keys or key.keys, action or key.action, word or key.help, bool(word), id=key.id)


def bindings_of(kind: type[Screen[Any]]) -> list[Binding]:
    """Return a screen's bindings, then inherited bindings."""
    by_id: dict[str, Binding] = {}
    for base in kind.__mro__:
        for binding in vars(base).get("BINDINGS", ()):
            if isinstance(binding, Binding) and binding.id:
                by_id.setdefault(binding.id, binding)
    return list(by_id.values())


def closer(binding: str) -> Binding:
    """Return the binding that closes a page with its opening key."""
    return bound(binding, "dismiss")


class MonitorScreen(StyledScreen[str | None]):
    """A screen that shows a monitor's state. Thread: the app's only."""

    still = False
    """Whether only keys change the screen."""

    def __init__(self, monitor: Monitor) -> None:
        super().__init__()
        self.monitor = monitor

    def redraw(self) -> None:
        raise NotImplementedError

    def on_resize(self) -> None:
        """Draw again. A frame of the old size may have come since the app noticed the new one."""
        self.monitor.app.forget()
        self.redraw()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self.call_next(self.redraw)

    def on_screen_resume(self) -> None:
        self.monitor.app.forget()
        self.redraw()

    def plain_text(self) -> str:
        return "\n".join(line for lines in self.query(Lines) for line in plain(lines.rows))

    def action_show_tab(self, name: str) -> None:
        if name == LEAVE and self.monitor.source.detachable and self.monitor.asks("quit"):
            self.monitor.leave()
        elif name in self.monitor.view.tabs:
            self.monitor.show(name)

    def action_profile_lane(self) -> None:
        if self.monitor.may_change() and "profile" in self.monitor.view.tabs:
            several = self.monitor.view.focused is None and len(self.monitor.snapshot.lanes) > 1
            self.monitor.show("profiles" if several else "profile")

    def action_open(self, name: str) -> None:
        self.monitor.open(name)

    def action_save_picture(self) -> None:
        self.monitor.save_picture(self.plain_text())

    def action_save_report(self) -> None:
        self.monitor.save_report()

    def action_quit(self) -> None:
        self.monitor.quit()

    def may_act(self) -> bool:
        if not self.monitor.may_change():
            return False
        if running := running_line(self.monitor.snapshot, self.monitor.view.keys):
            self.monitor.say(running)
        return not running

    def action_step_knob(self, name: str, direction: int) -> None:
        if not self.may_act():
            return
        try:
            knob = find(self.monitor.snapshot.race.knobs, name)
        except KnobError:
            self.monitor.say(no_knob(self.monitor.snapshot, name))
            return
        every = self.monitor.snapshot.lanes
        chosen = targets(every, self.monitor.view.focused)
        lanes = reachable(chosen, knob, direction, focused=self.monitor.view.focused is not None)
        again = [lane for lane in lanes if may_start_again(lane)]
        new, end = next_values(lanes, knob, direction)
        for lane, value in new.items():
            self.monitor.source.send(Command("change knob", (lane,), name, (value,)))
        change = effect(lanes, knob, direction) + (f" · {titles(lanes)} only" if len(lanes) < len(every) else "")
        if end:
            self.monitor.say(end)
        elif again:
            self.monitor.say(f"starting again with another {short_name(name)}: {titles(again)}")
        elif new and knob.kind == "restart":
            self.monitor.say(f"{change}, with a restart of {titles(chosen)}")
        elif new and not self.monitor.view.notice:
            self.monitor.say(change)
        else:
            self.monitor.pull()

    def run_experiment(self, command: Command) -> str | None:
        try:
            answer = self.monitor.source.ask(command, ANSWER_S)
        except TfmonError as error:
            self.monitor.say(error.line)
            return None
        self.monitor.pull()
        return answer

    def try_advice(self, lanes: Sequence[LaneState]) -> None:
        lane = to_improve(self.monitor.analysis, lanes) if self.may_act() else None
        if lane is not None:
            self.run_experiment(Command("begin tuning", (lane,), values=(False,)))

    def action_undo(self) -> None:
        if self.monitor.may_change() and (undone := self.run_experiment(Command("undo"))) is not None:
            self.monitor.say(f"undone: {undone}")
