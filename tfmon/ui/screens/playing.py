"""What every replay has: a player that moves on with the time, and lanes that nothing changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from textual.app import App

from tfmon.model.ports import ExperimentError, ReplayControls
from tfmon.model.session import Snapshot
from tfmon.ui.display import Display
from tfmon.ui.keys import PAGE_KEYS, REPLAY_KEYS, WATCHING_KEYS, Key

REFUSAL = "this is a replay of a race that is over: nothing in it can be changed"
MESSAGE_S = 5.0
PULL_S = 0.1
FOREVER_NS = 2**63


class Playing(Display):
    """Shows what a player plays. Thread: the app's only."""

    app: App[Any]
    playback: ReplayControls
    _ticked_s: float | None = None

    def play(self) -> None:
        """Draw, if it plays."""
        if self.playback.state().playing:
            self.pull()

    def tick(self) -> None:
        """Play as much as the time since the last call."""
        now_s = time.monotonic()
        self.playback.tick(0.0 if self._ticked_s is None else now_s - self._ticked_s)
        self._ticked_s = now_s

    def say(self, message: str, done: Callable[[Snapshot], bool] | None = None) -> None:
        """Show a line for a few seconds of the user's time, not of the race's."""
        self.view = replace(self.view, message=message, message_until_ns=FOREVER_NS, message_done=done)
        self.app.set_timer(MESSAGE_S, lambda: self._unsay(message))
        self.pull()

    def _unsay(self, message: str) -> None:
        if self.view.message == message:
            self.unsay()
            self.pull()

    @property
    def help_keys(self) -> tuple[Key, ...]:
        """The keys of a replay."""
        return (*REPLAY_KEYS, *WATCHING_KEYS, *PAGE_KEYS)

    @property
    def may_change_lanes(self) -> bool:
        """Nothing can be changed."""
        return False

    def may_change(self) -> bool:
        """Return False, and say why."""
        self.say(REFUSAL)
        return False


class NoControls:
    """Controls of a race that is over: each says that nothing can be changed."""

    def __init__(self, replay: Playing) -> None:
        self._replay = replay

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return lambda *_args, **_more: self._replay.may_change()


class NoExperiments:
    """Experiments on a race that is over."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        def refuse(*_args: object, **_more: object) -> None:
            raise ExperimentError(REFUSAL)

        return refuse
