"""The pages of text that scrolls: the help, reports that take a moment to make, and what can be copied."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.screen import Screen

from tfmon.analysis.analysis import Analysis
from tfmon.analysis.finish import finish_lines
from tfmon.errors import TfmonError
from tfmon.model.knobs import short_name, show
from tfmon.model.lane_state import LaneState
from tfmon.model.naming import ordered_settings
from tfmon.model.session import Snapshot
from tfmon.ui.keys import BY_ID, Key, key_of, listed_keys
from tfmon.ui.monitor import Monitor
from tfmon.ui.render.glossary import SECTIONS
from tfmon.ui.render.rows import BLANK, Row, cells, entry, wrap
from tfmon.ui.render.style import DIM, KEY, STRONG, TEXT, TROUBLE, WARN
from tfmon.ui.render.tabs import Hint
from tfmon.ui.screens.page import OneLanePage, Page, bound, closer
from tfmon.ui.screens.scroll import ScrollPage

_STYLES = (("✗", TROUBLE), ("!", WARN))
_SHARE = re.compile(r"^    .* (\d+(?:\.\d+)?) %(?= |$)")
"""A line of a table that has a share."""
_SHORTEST_BAR, _LONGEST_BAR = 8, 30


class HelpPage(ScrollPage):
    """Lists the keys of a page first, then all others by what they are for, and explains every number."""

    BINDINGS: ClassVar[list[BindingType]] = [closer("help"), closer("choose")]
    still = True
    title_text = "Help"

    def __init__(self, monitor: Monitor) -> None:
        """Explain the keys of the page that is shown first."""
        super().__init__(monitor)
        of = monitor.app.screen
        self._first = keys_of_page(of) if isinstance(of, Page) else ()
        self._of = of.tab or str(of.title_text) if isinstance(of, Page) else ""
        if monitor.view.replay:
            self.title_text = "Help: a replay"

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        """Return the whole help."""
        return help_rows(self.monitor.view.keys, width, self.monitor.help_keys, self._first, self._of)

    def action_choose(self) -> None:
        """Keep the words that are typed, or go back."""
        if not self.keep_filter():
            self.dismiss(None)


def keys_of_page(page: Screen[Any]) -> tuple[Key, ...]:
    """Return what the page's own keys do, without those that every page has."""
    common = {one.id for one in Page.BINDINGS if isinstance(one, Binding)}
    found: dict[str, Key] = {}
    for kind in type(page).__mro__:
        for one in vars(kind).get("BINDINGS", ()):
            if isinstance(one, Binding) and one.id and one.id not in common and one.id in BY_ID:
                known = BY_ID[one.id]
                found.setdefault(one.id, Key(one.id, one.key, one.action, known.help, known.group))
    return tuple(found.values())


def help_rows(
    keys: Mapping[str, str],
    width: int,
    listed: Iterable[Key] = listed_keys(replay=False, sweep=False),
    first: Iterable[Key] = (),
    name: str = "",
) -> list[Row]:
    """Return the help on keys, written as remapped, and on numbers; those of the page of that name `first`."""
    rows: list[Row] = []
    first = tuple(first)
    if first:
        rows += [BLANK, ((f"  On this page: {name}", STRONG),)]
        for key in first:
            shown = key_of(key.id, keys) if key.keys == BY_ID[key.id].keys or key.id in keys else key.label
            rows += entry(shown, key.help, width, KEY)
    group, told = "", {key.id for key in first}
    for key in listed:
        if key.id in told:
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


class DoctorPage(ScrollPage):
    """Has the doctor examine the machine when it is first shown, and keeps the report."""

    tab = "doctor"
    still = True
    title_text = "Doctor: is TensorFlow fit to use the GPU, and this machine for a fair race?"
    _note = "TensorFlow itself was not loaded, so as not to disturb the race: `tfmon doctor` does that, too."

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self._report: str | None = None
        self._working = False

    def on_mount(self) -> None:
        """Request the report."""
        self._examine()

    def _examine(self) -> None:
        if not self._working:
            self._report, self._working = None, True
            self.monitor.work(self.monitor.source.examine, self._take)
            self.redraw()

    def _take(self, report: str) -> None:
        self._report, self._working = report, False
        self.redraw()

    def own_hints(self) -> list[Hint]:
        """Return what the keys do."""
        again = [] if self._working else [Hint(("choose",), "examine again", "choose")]
        return [*super().own_hints(), *again]

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        """Return the report, or that it is in preparation."""
        if self._report is None:
            return [BLANK, (("  examining TensorFlow, drivers and the machine…", TEXT),)]
        return report_rows(self._report, self._note, width)

    def action_choose(self) -> None:
        """Examine again."""
        if not self.keep_filter():
            self._examine()


class ProfilePage(ScrollPage, OneLanePage):
    """Shows the latest profile of a lane; a lane that has none is profiled when the page is shown."""

    BINDINGS: ClassVar[list[BindingType]] = [bound("move.next"), bound("move.previous")]
    tab = "profile"
    still = True
    _note = "`tfmon profile` also writes the trace for Perfetto (--chrome FILE) or for xprof (--keep DIR)."

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self._reports: dict[tuple[int, str], str] = {}
        """By the race's number and the lane's name."""
        self._in_progress: tuple[int, str] | None = None

    def _about(self, lane: LaneState) -> tuple[int, str]:
        return self.monitor.snapshot.race.number, lane.spec.name

    def on_screen_resume(self) -> None:
        """Profile the lane if it has no profile yet."""
        lane = self.lane
        if lane is not None and not lane.over and self._about(lane) not in self._reports:
            self._profile(lane)

    def _profile(self, lane: LaneState) -> None:
        if self._in_progress is None and self.monitor.may_change():
            about = self._in_progress = self._about(lane)
            name, source = lane.spec.name, self.monitor.source

            def take(report: str) -> None:
                self._take(about, report)

            self.monitor.work(lambda: source.profile(name), take, take)
            self.redraw()

    def _take(self, about: tuple[int, str], report: str) -> None:
        self._reports = {key: text for key, text in self._reports.items() if key[0] == about[0]} | {about: report}
        self._in_progress = None
        self.redraw()

    def own_hints(self) -> list[Hint]:
        """Return what the keys do."""
        lane, hints = self.lane, [*self.lane_hints(), *super().own_hints()]
        if lane is not None and not lane.over and self._in_progress is None and not self.monitor.refusal:
            again = "profile again" if self._about(lane) in self._reports else f"profile {lane.spec.id}"
            hints.insert(0, Hint(("choose",), again, "choose"))
        return hints

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        """Return the report, or what is done or can be done about it."""
        lane = self.lane
        self.title_text = "Profile" if lane is None else f"Profile of lane {lane.spec.id}: {lane.title}"
        if lane is None:
            return [BLANK, (("  there is no lane yet", TEXT),)]
        report = self._reports.get(self._about(lane))
        if self._in_progress == self._about(lane):
            said = "the lane trains 20 steps under TensorFlow's profiler; they do not count…"
        elif report is not None:
            return with_bars(report_rows(report, self._note, width), width)
        elif lane.over:
            said = f"{lane.title} does not train, so there is nothing to profile"
        else:
            said = f"{self.key('choose')} profiles 20 steps of {lane.title}; they do not count"
        return [BLANK, *(((f"  {line}", TEXT),) for line in wrap(said, width - 4, 3))]

    def action_choose(self) -> None:
        """Profile the lane, also again."""
        lane = self.lane
        if not self.keep_filter() and lane is not None and not lane.over:
            self._profile(lane)


def report_rows(report: str, note: str, width: int) -> list[Row]:
    """Return a report and a note below it; what is too long is wrapped, aligned with its last column."""
    rows: list[Row] = [BLANK]
    for line in report.splitlines():
        rows += _rows(line, width)
    return [*rows, BLANK, *(((f"  {line}", DIM),) for line in wrap(note, width - 4, 4))]


def with_bars(rows: Sequence[Row], width: int) -> list[Row]:
    """Return the rows of a report with a bar beside each share, where there is room at their right."""
    shares = [_SHARE.search("".join(text for text, _ in row)) for row in rows]
    at = max((cells(row) for row, share in zip(rows, shares, strict=True) if share), default=0) + 2
    length = min(_LONGEST_BAR, width - at - 2)
    if length < _SHORTEST_BAR:
        return list(rows)
    drawn = []
    for row, share in zip(rows, shares, strict=True):
        if share is None:
            drawn.append(row)
            continue
        filled = min(length, round(float(share[1]) / 100 * length))
        gap = (" " * (at - cells(row)), TEXT)
        drawn.append((*row, gap, ("▓" * filled, STRONG), ("░" * (length - filled), DIM)))
    return drawn


def _rows(line: str, width: int) -> Iterator[Row]:
    style = next((style for mark, style in _STYLES if line.lstrip().startswith(mark)), TEXT)
    if style == TEXT and line and not line.startswith(" "):
        style = STRONG
    if len(line) <= width - 4 or not line.strip():
        yield ((f"  {line}", style),)
        return
    columns = [match.end() for match in re.finditer(r"(?<=\S) {2,}|^ +(\w+: )?", line)]
    indent = max((at for at in columns if at < width * 0.6), default=0)
    first, *more = wrap(line[indent:], max(10, width - 4 - indent), 20)
    yield ((f"  {line[:indent]}{first}", style),)
    yield from (((f"  {' ' * indent}{part}", style),) for part in more)


# ---------------------------------------------------------------- what can be copied


_TOLD = (
    "copied, if this terminal lets programs copy (OSC 52; it gives no answer)",
    "to select with the mouse, hold Shift (Option on a Mac) while you drag",
)


class CopyPage(ScrollPage):
    """Copies the verdict and the command when it opens, and shows both to be selected."""

    BINDINGS: ClassVar[list[BindingType]] = [closer("copy")]
    still = True
    title_text = "Copied"

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(monitor)
        self._verdict = verdict_lines(monitor.analysis)
        self._command, self._problem = "", ""
        try:
            self._command = monitor.source.repeat()
        except TfmonError as error:
            self._problem = error.line

    @property
    def text(self) -> str:
        """What is copied."""
        return "\n".join([*self._verdict, *([self._command] if self._command else [])]) + "\n"

    def on_mount(self) -> None:
        """Copy."""
        self.app.copy_to_clipboard(self.text)

    def rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        """Return the texts, without anything beside them that a selection would take along."""
        rows: list[Row] = [BLANK]
        for line in self._verdict:
            rows += [((part, TEXT),) for part in wrap(line, width, 9)]
        if self._command or self._problem:
            rows += [BLANK, (("  The command that races these lanes with the settings in effect", STRONG),), BLANK]
        rows += [((line, TEXT),) for line in continued(self._command, width)]
        rows += [((f"  there is none: {line}", WARN),) for line in wrap(self._problem, width - 18, 3)]
        rows.append(BLANK)
        return rows + [((f"  {line}", DIM),) for told in _TOLD for line in wrap(told, width - 2, 2)]


def verdict_lines(analysis: Analysis) -> list[str]:
    """Return the verdict as a sentence, what limits it, and what each lane trains under as far as they differ."""
    snapshot, verdict = analysis.snapshot, analysis.verdict
    scenario = f"{snapshot.race.scenario}: " if snapshot.race.scenario else ""
    lines = [f"{scenario}{verdict.text}", *([verdict.note] if verdict.note else []), *finish_lines(snapshot)]
    return lines + list(_differing(snapshot))


def _differing(snapshot: Snapshot) -> Iterator[str]:
    """Yield a line for each lane with every knob in which the lanes differ."""
    for lane in snapshot.lanes if snapshot.differing else ():
        told = [f"{short_name(knob)} {show(value)}" for knob, value, differs in ordered_settings(lane) if differs]
        yield f"{lane.spec.id}: {lane.spec.place}, {', '.join(told)}"


def continued(command: str, width: int) -> Sequence[str]:
    """Return a command in lines that a shell takes as one: all but the last end with a backslash.

    It is only broken between words, outside of quotes; a longer word stays whole.
    """
    words = re.findall(r"(?:[^\s'\"]|'[^']*'|\"[^\"]*\")+", command)
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) + 2 <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(f"  {word}" if lines else word)
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]
