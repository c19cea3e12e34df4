"""What the screens need of the app: the latest snapshot, the view, the styles and the controls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from rich.style import Style

from tfmon.model.ports import Controls, TrialError, Trials
from tfmon.model.session import Snapshot
from tfmon.ui.view import View


class ScenarioCard(Protocol):
    """One scenario as the picker shows it."""

    @property
    def name(self) -> str:
        """What `race` takes."""

    @property
    def title(self) -> str:
        """One line."""

    @property
    def doc(self) -> str:
        """A paragraph; may be empty."""

    @property
    def origin(self) -> str:
        """Where it comes from, such as "built in" or a path."""


class Shell(Protocol):
    """The app, as its screens see it."""

    snapshot: Snapshot
    view: View
    palette: Mapping[str, Style]
    controls: Controls
    trials: Trials

    def table(self) -> str:
        """Return the race as a table; empty where there is none."""

    def say(self, message: str) -> None:
        """Show a line for a few seconds."""

    def pull(self) -> None:
        """Read the session and draw what changed."""

    def cards(self) -> Sequence[ScenarioCard]:
        """Return the scenarios that can be raced."""

    def examine(self, then: Callable[[str], None]) -> None:
        """Let the doctor look at the machine, and hand over its report; the screen stays awake."""

    def profile(self, lane: str, then: Callable[[str], None]) -> None:
        """Profile a lane, and hand over the report or why there is none; the screen stays awake."""

    def start_race(self, scenario: str) -> None:
        """Start the race of another scenario, without blocking the screen."""


def may_change(shell: Shell) -> bool:
    """Return whether keys may change the race; where they may not, say so."""
    if shell.view.readonly:
        shell.say("read only: this screen shows the race and changes nothing (--readonly)")
    return not shell.view.readonly


def undo_advice(shell: Shell) -> None:
    """Take back the change that was kept last, and say so."""
    if not may_change(shell):
        return
    try:
        shell.say(f"undone: {shell.trials.undo()}")
    except TrialError as error:
        shell.say(str(error))
