"""What the screen knows besides the snapshot: the focus, the line it has to say, the scale of the charts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rich.style import Style

from tfmon.model.ports import Controls, ExperimentError, Experiments
from tfmon.model.session import Snapshot
from tfmon.ui.render.style import Charset


@dataclass(frozen=True, slots=True)
class View:
    """State of the screen itself."""

    focused: str | None = None
    """Name of the lane that keys act on; None for all."""
    message: str = ""
    """What the last key press came to."""
    message_until_ns: int = 0
    lost: tuple[str, ...] = ()
    """Lanes that failed out of sight, until the user takes note; see `tfmon.ui.render.verdict`."""
    seen: tuple[str, ...] = ()
    """Lanes whose failure the user has seen."""
    no_race: str = ""
    """Why there is no race to show, if the first one could not be started."""
    stopping: bool = False
    """True once the user has quit and the lanes are ending."""
    top: float = 0.0
    """Top of the scale that all charts share, examples/s."""
    sent_bytes_per_s: float | None = None
    """What the screen sent to the terminal, over the last 10 s; None before that is known."""
    readonly: bool = False
    """True where keys may not change the race."""
    charset: Charset = "braille"
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys that differ from the built-in ones, by the binding's id."""


def focused_index(view: View, snapshot: Snapshot) -> int | None:
    """Return the place of the focused lane; None when all are, or it is gone."""
    for place, lane in enumerate(snapshot.lanes):
        if lane.spec.name == view.focused:
            return place
    return None


# ---------------- what the screens need of the app: the latest snapshot, the view, the styles and the controls


class ScenarioRow(Protocol):
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
    experiments: Experiments

    def table(self) -> str:
        """Return the race as a table; empty where there is none."""

    def say(self, message: str) -> None:
        """Show a line for a few seconds."""

    def pull(self) -> None:
        """Read the session and draw what changed."""

    def infos(self) -> Sequence[ScenarioRow]:
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
        shell.say(f"undone: {shell.experiments.undo()}")
    except ExperimentError as error:
        shell.say(str(error))
