"""The comparison of a race, the condition of its first verdict, the verdict, and the result at the end. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import PurePath

from tfmon import units
from tfmon.analysis.analysis import Analysis, LaneAnalysis
from tfmon.analysis.finish import loss_warnings
from tfmon.analysis.prediction import LONG_STEP_S, least_rounds, round_s, unfinished
from tfmon.analysis.tuning import undoes_last
from tfmon.analysis.verdict import Verdict
from tfmon.analysis.verdict_notes import unlike_phases
from tfmon.model.knobs import short_name, show
from tfmon.model.lane_state import ABSENT, FAILED, PAUSED, READY, STAGES, LaneState
from tfmon.model.race import MODE_MARKS, TURNS
from tfmon.model.session import Snapshot
from tfmon.ui.keys import key_of
from tfmon.ui.render import hosts, readings
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, cell_len, cells, fit, wrap
from tfmon.ui.render.style import STRONG, WARN, lane_style, strong
from tfmon.ui.source import Display

_COUNTS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight")


def comparison(snapshot: Snapshot, width: int = 999) -> str:
    """Return the comparison of the lanes in one sentence of `width` cells. Empty before there are lanes."""
    why, sentence = "No GPU here, so " if snapshot.machine.no_gpu else "", ""
    for no_gpu, most in ((why, 3), (why, 2), ("", 2)):
        sentence = _comparison(snapshot, no_gpu, most)
        if cell_len(sentence) <= width:
            break
    return sentence[:1].upper() + sentence[1:]


def _comparison(snapshot: Snapshot, why: str, most: int) -> str:
    lanes = snapshot.lanes
    if not lanes:
        return ""
    script = any(lane.script.command for lane in lanes)
    devices = list(dict.fromkeys((lane.spec.host, lane.spec.device) for lane in lanes))
    where = _where(snapshot, devices, most)
    if len(lanes) == 1:
        what = "your script trains" if script else "the training runs"
        return f"{why}{what} on {where}; one lane, so nothing is compared"
    what = "your script" if script else "the same training"
    if len(devices) == len(lanes):
        also = _settings(lanes)
        return f"{what} on {where}" + (f"; also differs: {also}" if also else "")
    if not snapshot.differing:
        times = "twice" if len(lanes) == 2 else f"{len(lanes)} times"
        return f"{why}{what} runs {times} on {where}, with equal settings"
    count = _COUNTS[len(lanes)].lower() if len(lanes) < len(_COUNTS) else str(len(lanes))
    return f"{why}{count} settings race on {where}: {_settings(lanes)}"


def _settings(lanes: Sequence[LaneState]) -> str:
    differs = lanes[0].differs or ()
    if not differs:
        return ""
    if len(lanes) == 2:
        return " against ".join(lane.short_title.removeprefix(f"{lane.spec.place}, ") for lane in lanes)
    values_by_knob = []
    for knob in differs:
        values = dict.fromkeys(show(lane.in_effect[knob]) for lane in lanes if knob in lane.in_effect)
        values_by_knob.append(f"{short_name(knob)} {', '.join(values)}")
    return " · ".join(values_by_knob)


def _where(snapshot: Snapshot, devices: Sequence[tuple[str, str]], most: int) -> str:
    """Return the devices and their machines, or count them if there are more than `most`."""
    named = list(dict.fromkeys(host for host, _ in devices))
    if len(devices) > (most if len(named) > 1 else 2):
        count = snapshot.machines
        of = f" of {count} machines" if count > 1 else f" of {named[0]}" if named[0] else ""
        return f"{len(devices)} devices{of}"
    if len(devices) == 2 and len(named) == 1 and named[0]:
        names = [hosts.device_words("", device, named=False) for _, device in devices]
        return f"{names[0]} and {names[1]} of {named[0]}"
    names = [hosts.device_words(host, device, named=named != [""]) for host, device in devices]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def awaited(analysis: Analysis) -> str:
    """Return the condition and the estimated time for the first verdict. Empty without an awaited one."""
    snapshot, curve = analysis.snapshot, analysis.curve
    if curve is not None and snapshot.experiment is not None and not snapshot.experiment.over:
        return f"crossover: {curve.text}"
    lanes = [lane for lane in snapshot.lanes if lane.phase not in (FAILED, ABSENT)]
    answered = analysis.verdict.ratio is not None or unlike_phases(lanes)
    if answered or len(lanes) < 2 or any(lane.over for lane in lanes):
        return ""
    if any(lane.phase in STAGES and lane.phase != READY and not lane.points for lane in lanes):
        return "no verdict yet: the lanes are getting ready"
    changed = _changed(snapshot, lanes)
    if snapshot.race.mode != TURNS:
        measured = all(lane.steady.windows for lane in lanes)
        return f"measuring again: {changed}" if changed and not measured else ""
    rounds, least = len(_rounds(lanes)), least_rounds(snapshot.race)
    what = f"measuring again: {changed}" if changed else f"measured {rounds} of {least} rounds"
    if any(lane.phase == PAUSED for lane in lanes):
        return f"{what}; no verdict while a lane is paused"
    if snapshot.race.exclusive:
        return f"{what}; the race continues after the experiment"
    if text := unfinished(lanes, snapshot.at_ns)[0]:
        what = text
    left_s = seconds_to_verdict(snapshot, lanes)
    return what if left_s is None else f"{what}; verdict in about {max(1, math.ceil(left_s))} s"


def _rounds(lanes: Sequence[LaneState]) -> set[int]:
    return set.intersection(*({one.round for one in lane.slices} for lane in lanes))


def seconds_to_verdict(snapshot: Snapshot, lanes: Sequence[LaneState]) -> float | None:
    """Return about how long the rounds take that an interval still needs. None before that is known."""
    complete, pace_s = _rounds(lanes), round_s([lane.slices for lane in lanes])
    if pace_s is None:
        if snapshot.race.slice_s is None or any(lane.step_runs_s(snapshot.at_ns) > LONG_STEP_S for lane in lanes):
            return None
        took_s = (lane.points[-1].span_ns / 1e9 if lane.points else 0 for lane in lanes)
        pace_s = sum(max(snapshot.race.slice_s, one) for one in took_s)
    ends = [one.at_ns for lane in lanes for one in lane.slices if one.round == max(complete, default=0)]
    begun_ns = max(ends, default=snapshot.race.started_ns or snapshot.at_ns)
    spent_s = min(pace_s, max(0, snapshot.at_ns - begun_ns) / 1e9)
    return max(0, least_rounds(snapshot.race) - len(complete)) * pace_s - spent_s


def _changed(snapshot: Snapshot, lanes: Sequence[LaneState]) -> str:
    started_ns = snapshot.race.started_ns or 0
    latest = max(
        (mark for lane in lanes for mark in lane.changes.marks[-1:]), key=lambda mark: mark.at_ns, default=None
    )
    if latest is not None and latest.text == MODE_MARKS[snapshot.race.mode]:
        return f"now {latest.text}"
    lanes_by_knob: dict[str, list[str]] = {}
    least = least_rounds(snapshot.race)
    for lane in lanes:
        for mark in lane.changes.marks[-1:]:
            knob = mark.text.partition(" ")[0]
            if knob in lane.settings and mark.at_ns > started_ns and len(lane.slices) < least:
                lanes_by_knob.setdefault(knob, []).append(lane.spec.id)
    changes = [f"{knob.replace('_', ' ')} of {' and '.join(ids)}" for knob, ids in lanes_by_knob.items()]
    return f"{', '.join(changes)} changed" if changes else ""


FRAME_ROWS = 2
LEAST_RESULT = 3


def shows(snapshot: Snapshot, view: Display) -> bool:
    """Return whether the race is over without a request, so that its result is shown."""
    return snapshot.over and not view.stopping


def elapsed(snapshot: Snapshot) -> str:
    """Return the time since the start signal; once every lane is over, how long they raced."""
    started_ns, raced_s = snapshot.race.started_ns, snapshot.raced_s
    if snapshot.over and raced_s is not None:
        return units.clock(raced_s)
    if started_ns is None and not snapshot.over:
        return "0:00"
    started_ns = min(lane.process.started_ns for lane in snapshot.lanes) if started_ns is None else started_ns
    now_ns = max(lane.phase_since_ns for lane in snapshot.lanes) if snapshot.over else snapshot.at_ns
    return units.clock((now_ns - started_ns) / 1e9)


_LEAD_CELLS = 6


def verdict_rows(analysis: Analysis, view: Display, width: int, height: int) -> list[Row]:
    """Return `height` rows: the verdict, the tried changes, its note, and the line about a missing GPU."""
    snapshot = analysis.snapshot
    if not snapshot.lanes:
        return [BLANK] * height
    spare = 1 if height >= 5 else 0
    ranked = analysis.verdict.ranked
    most = height - spare if len(snapshot.lanes) == 1 else 2 if height >= (5 if ranked else 3) else 1
    rows = [BLANK] * spare + verdict_lines(analysis, view, width, most)
    details = analysis.earlier or "; ".join(ranked)

    def add(text: str, style: str, most: int) -> None:
        rows.extend((("   " + line, style),) for line in wrap(text, width - 4, most))

    add(details, TEXT, min(2, height - len(rows) - (0 if ranked else 1)))
    undoes = analysis.news and not view.fixed and undoes_last(snapshot)
    tried = f"{analysis.news} · {key_of('undo', view.keys)} to undo" if undoes else analysis.news
    add(tried, STRONG, min(2, height - len(rows)))
    no_gpu = f"no GPU lane: {snapshot.machine.no_gpu}" if snapshot.machine.no_gpu else ""
    for text, style in (*((one, WARN) for one in snapshot.race.differs), (analysis.verdict.note, DIM)):
        add(text, style, height - len(rows) - (1 if no_gpu else 0))
    add(no_gpu, TEXT, height - len(rows))
    return (rows + [BLANK] * height)[:height]


def verdict_lines(analysis: Analysis, view: Display, width: int, most: int) -> list[Row]:
    """Return who is ahead, in the winner's accent, or what that still takes; by ids where names have no room."""
    verdict, room = analysis.verdict, width - _LEAD_CELLS
    waits = "" if view.stopping else awaited(analysis)
    if waits:
        return [(("   ", TEXT), (line, TEXT)) for line in wrap(waits, room, most)]
    lines, names_fit = _whole_or_short(verdict, room, most)
    for index, lane in enumerate(analysis.snapshot.lanes):
        if lane.spec.name == verdict.winner:
            style = strong(lane_style(index))
            unnamed = names_fit and len(analysis.snapshot.lanes) < 3
            lead: Row = ((" ▲ ", style), (f"{lane.spec.id}  " if unnamed else "", style))
            more: Row = ((" " * cells(lead), TEXT),)
            return [(*(more if place else lead), (line, STRONG)) for place, line in enumerate(lines)]
    return [(("   ", TEXT), (line, TEXT)) for line in lines]


def _whole_or_short(verdict: Verdict, width: int, most: int) -> tuple[Sequence[str], bool]:
    """Return the lines of a verdict and whether it fits. If not, the lines are of its short form."""
    fits = len(wrap(verdict.text, width, most + 1)) <= most
    return wrap(verdict.text if fits or not verdict.short else verdict.short, width, most), fits


def result_height(analysis: Analysis, view: Display, width: int, most: int) -> int:
    """Return the height of the result in rows, frame included, at most `most`."""
    return max(LEAST_RESULT, min(most, len(_result(analysis, view, width - 6, 99)) + FRAME_ROWS))


def result_rows(analysis: Analysis, view: Display, width: int, height: int) -> list[Row]:
    """Return the framed result: the verdict, its limits, discarded time, and the path of the recording."""
    inner = width - 4
    started = analysis.snapshot.race.started_ns is not None
    head, time = " Result ", f" after {elapsed(analysis.snapshot)} " if started else ""
    flat = "─" * max(0, width - len(head) - len(time) - 4)
    rows: list[Row] = [(("╭─", DIM), (head, STRONG), (flat, DIM), (time, TEXT), ("─╮", DIM))]
    for row in _result(analysis, view, width - 6, height - FRAME_ROWS):
        rows.append((("│ ", DIM), *fit(row, inner), (" │", DIM)))
    return [*rows, (("╰" + "─" * (width - 2) + "╯", DIM),)]


def _result(analysis: Analysis, view: Display, width: int, height: int) -> list[Row]:
    snapshot, verdict = analysis.snapshot, analysis.verdict
    winner = next((n for n, lane in enumerate(snapshot.lanes) if lane.spec.name == verdict.winner), None)
    lead = ("  ", TEXT) if winner is None else ("▲ ", strong(lane_style(winner)))
    lines = [(line, STRONG) for line in _whole_or_short(verdict, width, max(1, height))[0]]
    for text, style in (
        *((line, strong(WARN)) for line in loss_warnings(snapshot)), (analysis.finish(), TEXT),
        (analysis.earlier, STRONG), (analysis.news, STRONG),
        (snapshot.race.interrupted, strong(WARN)), *((line, strong(WARN)) for line in snapshot.race.differs),
        (verdict.note, TEXT),
        (_discarded(analysis), DIM), ("" if view.replay else _recorded(snapshot), DIM),
    ):  # fmt: skip
        lines += [(line, style) for line in wrap(text, width, max(0, min(2, height - len(lines))))]
    return [(("  ", TEXT) if place else lead, line) for place, line in enumerate(lines)]


def _discarded(analysis: Analysis) -> str:
    """Return the discarded share of each lane's time, or one share if it is the same for all."""
    by_lane = {one.lane.spec.id: one.discarded_text for one in analysis.lanes if one.windows}
    if len(set(by_lane.values())) < 2:
        return next(iter(by_lane.values()), "")
    parts = [f"{id} {text.removeprefix('discarded ')}" for id, text in by_lane.items()]
    return f"discarded: {'; '.join(parts)}"


def _recorded(snapshot: Snapshot) -> str:
    recording = snapshot.recording
    if recording is None or not recording.path:
        return f"not recorded: {recording.reason}" if recording is not None and recording.reason else ""
    again = "; `tfmon replay last` shows it again" if snapshot.has_result else ""
    return f"recorded as {PurePath(recording.path).name}{again}"


def last_figures(
    analysis: LaneAnalysis, width: int, height: int, accent: str, least_chart: int
) -> tuple[list[Row], int]:
    """Return the last figures of a lane that fit below its throughput, and the rows that a chart may take."""
    lane, bottleneck, speed = analysis.lane, analysis.bottleneck, analysis.speed
    interval = f"95 % CI {units.rate(speed.low)} to {units.rate(speed.high)} examples/s" if speed else ""

    def lines(text: str, most: int, style: str) -> list[Row]:
        return [((line, style),) for line in wrap(text, width, most)]

    def measured(most: int) -> list[Row]:
        text = f"{analysis.measured_text}; {analysis.discarded_text}"
        return lines(text if len(text) < width * most * 0.9 else analysis.measured_text, most, DIM)

    parts: list[tuple[int, Callable[[int], list[Row]]]] = [
        (3, lambda most: lines(interval, most, DIM)),
        (0, lambda most: lines(bottleneck.line if bottleneck else "", most, TEXT)),
        (1, lambda most: lines(bottleneck.help if bottleneck else "", most, STRONG)),
        (2, lambda _: [readings.step_row(lane, width)]),
        (7, lambda _: [readings.time_row(bottleneck.shares if bottleneck else None, width, accent)]),
        (5, lambda _: [readings.loss_row(lane)]),
        (4, lambda _: [readings.done_row(lane, width, discarded=False)]),
        (6, measured),
        (8, lambda most: readings.knobs_rows(lane, width, most)),
    ]
    kept: dict[int, list[Row]] = {}
    left = height
    for place in sorted(range(len(parts)), key=lambda place: parts[place][0]):
        rows = parts[place][1](min(3, left))
        if rows and len(rows) <= left:
            kept[place] = rows
            left -= len(rows)
    rows = [row for place in range(len(parts)) for row in kept.get(place, ())]
    return rows, left if left >= least_chart else 0
