"""What the screens show and request of: a race, a recording or a sweep; and the state of the screen itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, TypeAlias

from tfmon.analysis.sweep import Found
from tfmon.model.lane_state import ABSENT, FAILED
from tfmon.model.ports import Controls, Experiments, ReplayControls, RunInfo
from tfmon.model.session import Snapshot
from tfmon.ui.keys import TAB_NAMES
from tfmon.units import Charset

SHARED, OWN = "shared", "own"
"""Which scale the charts have: one for all lanes, or one for each."""
SPANS_S = (60, 300, 1_800)


@dataclass(frozen=True, slots=True)
class Scale:
    """The vertical axis of a chart."""

    low: float = 0.0
    high: float = 0.0
    """As `low` before there is anything to draw."""


@dataclass(frozen=True, slots=True)
class Display:
    """State of the screen itself."""

    focused: str | None = None
    message: str = ""
    """What the last key press did, or why it did nothing."""
    message_until_ns: int = 0
    message_done: Callable[[Snapshot], bool] | None = None
    """Whether what the message announces has happened; None where it announces nothing."""
    race: int = 0
    unseen: tuple[str, ...] = ()
    """Lanes that failed while they were not on the screen, until the user presses Esc."""
    seen: tuple[str, ...] = ()
    """Lanes whose failure the user has seen."""
    no_race: str = ""
    """Why there is no race to show, if the first one could not be started."""
    stopping: bool = False
    metric: str = "throughput"
    """What the charts show: an id of `tfmon.ui.render.series`."""
    scale: str = SHARED
    span_s: int = SPANS_S[0]
    scales: Mapping[str, Scale] = field(default_factory=dict)
    """The scales as last drawn, by the lane's name or `SHARED`; a new one keeps near them."""
    zoomed: bool = False
    zoomed_from: str | None = None
    """The focus before that."""
    readonly: bool = False
    replay: bool = False
    tabs: tuple[str, ...] = ()
    charset: Charset = "braille"
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys that differ from the built-in ones, by the binding's id."""


def focused_index(view: Display, snapshot: Snapshot) -> int | None:
    """Return the place of the focused lane; None when all are, or it is gone."""
    for place, lane in enumerate(snapshot.lanes):
        if lane.spec.name == view.focused:
            return place
    return None


def with_failures(view: Display, snapshot: Snapshot, shown: Collection[str]) -> Display:
    """Return the view with the lanes that failed since: seen if the lane is among those shown, else unseen.

    A lane that trains again is neither.
    """
    failed = [lane.spec.name for lane in snapshot.lanes if lane.phase in (FAILED, ABSENT)]
    new = [name for name in failed if name not in view.unseen and name not in view.seen]
    unseen = (*(name for name in view.unseen if name in failed), *(name for name in new if name not in shown))
    seen = (*(name for name in view.seen if name in failed), *(name for name in new if name in shown))
    return view if (unseen, seen) == (view.unseen, view.seen) else replace(view, unseen=unseen, seen=seen)


def acknowledged(view: Display) -> Display:
    """Return the view after the user has acknowledged every failure."""
    return replace(view, unseen=(), seen=(*view.seen, *view.unseen))


Say: TypeAlias = Callable[[str], object]


class ScenarioRow(NamedTuple):
    """One scenario as the picker shows it."""

    name: str
    title: str
    doc: str
    """A paragraph; may be empty."""
    origin: str
    """Where it comes from, such as "built in" or a path."""


def _do_nothing(*_: object) -> None:
    """Start or end nothing."""


@dataclass(frozen=True, slots=True)
class Source:
    """Gives snapshots, and takes what keys request. What a kind of source does not have stays as it is here.

    Thread: the screen's, but for what may block. What raises TfmonError has its text shown.
    """

    snapshot: Callable[[], Snapshot]
    controls: Controls | None = None
    """Takes requests to the lanes; None where nothing can be changed."""
    experiments: Experiments | None = None
    """Takes requests for measurements on the lanes; None where nothing can be changed."""
    refusal: str = ""
    """Why no key can change anything; empty where keys can."""
    playback: ReplayControls | None = None
    """Moves through a recording; None where nothing is played."""
    sweep: Callable[[], Found | None] = lambda: None
    """Returns what is known of a sweep; None for a race."""
    unsaved: Callable[[], str] = str
    """Returns why what a sweep measured is not saved; empty while all is well."""
    name: str = ""
    """After which files are named; empty for the scenario of the race."""
    file: str = ""
    """Where it is recorded; empty for where the snapshot says."""
    tabs: tuple[str, ...] = TAB_NAMES
    runs: Runs | None = None
    """The recorded runs; None where there is no list of them."""
    scenarios: Callable[[], Sequence[ScenarioRow]] = tuple
    """Returns the scenarios that can be raced instead."""
    table: Callable[[], str] = str
    """Returns all of it as text; empty for what the screen shows."""
    repeat: Callable[[], str] = str
    """Returns the command that repeats the race with the settings in effect, or ""; raises TfmonError."""
    examine: Callable[[], str] = str
    """Returns the doctor's report. May block."""
    profile: Callable[[str], str] = str
    """Profiles the lane of that name and returns the report; raises TfmonError. May block."""
    watch_gpus: Callable[[], str] = str
    """Has all GPUs read from now on, and returns why there are none, or "". May block."""
    start: Callable[[Say], object] = _do_nothing
    """Starts the lanes, once there was a first paint; raises TfmonError. May block."""
    stop: Callable[[], object] = _do_nothing
    """Ends every lane and waits until all are gone, or closes what is played. May block."""
    end_now: Callable[[], object] = _do_nothing


class Runs(Protocol):
    """The user's recordings by their ids. Every method may block, and raises TfmonError with what was wrong."""

    def list(self) -> Sequence[RunInfo]:
        """Return all recordings by their start, the oldest first."""

    def delete(self, id: str) -> None:
        """Delete a recording for good; raises TfmonError for one that is being written."""

    def report(self, path: str) -> str:
        """Write a report of the recording in a file into the working directory; return the message to show."""

    def replay(self, id: str) -> Source:
        """Open a recording to play it; the caller stops it."""
