"""What is compared, and what the first verdict waits for, in words. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tfmon.analysis.analysis import Analysis
from tfmon.analysis.prediction import LONG_STEP_S, least_rounds, round_s, unfinished
from tfmon.analysis.verdict_notes import unlike_phases
from tfmon.model.knobs import short_name, show
from tfmon.model.lane_state import ABSENT, FAILED, PAUSED, LaneState
from tfmon.model.race import MODE_MARKS, TURNS
from tfmon.model.session import Snapshot
from tfmon.ui.render import hosts, lifecycle
from tfmon.ui.render.rows import cell_len

_COUNTS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight")


def comparison(snapshot: Snapshot, width: int = 999) -> str:
    """Return in one sentence what the lanes compare; empty before there are lanes.

    Where that is wider than `width` cells, it counts three devices, and does not say why there is no GPU lane.
    """
    why = "No GPU here, so " if snapshot.machine.no_gpu else ""
    for most in (3, 2):
        told = _comparison(snapshot, why, most)
        if cell_len(told) <= width:
            return told
    return _comparison(snapshot, "", 2)


def _comparison(snapshot: Snapshot, why: str, most: int) -> str:
    lanes = snapshot.lanes
    if not lanes:
        return ""
    script = any(lane.command for lane in lanes)
    devices = list(dict.fromkeys((lane.spec.host, lane.spec.device) for lane in lanes))
    where = _where(snapshot, devices, most)
    if len(lanes) == 1:
        what = "your script trains" if script else "the training runs"
        return _sentence(f"{why}{what} on {where}; one lane, so nothing is compared")
    what = "your script" if script else "the same training"
    if len(devices) == len(lanes):
        also = _settings(lanes)
        return _sentence(f"{what} on {where}" + (f"; also differs: {also}" if also else ""))
    if not snapshot.differing:
        times = "twice" if len(lanes) == 2 else f"{len(lanes)} times"
        return _sentence(f"{why}{what} runs {times} on {where}, with equal settings")
    count = _COUNTS[len(lanes)].lower() if len(lanes) < len(_COUNTS) else str(len(lanes))
    return _sentence(f"{why}{count} settings race on {where}: {_settings(lanes)}")


def _settings(lanes: Sequence[LaneState]) -> str:
    """Write the settings that differ: `batch 10 against batch 256`; of many lanes one knob with its values."""
    differs = lanes[0].differs or ()
    if not differs:
        return ""
    if len(lanes) == 2:
        return " against ".join(lane.short_title.removeprefix(f"{lane.spec.place}, ") for lane in lanes)
    told = []
    for knob in differs:
        values = dict.fromkeys(show(lane.in_effect[knob]) for lane in lanes if knob in lane.in_effect)
        told.append(f"{short_name(knob)} {', '.join(values)}")
    return " · ".join(told)


def _where(snapshot: Snapshot, devices: Sequence[tuple[str, str]], most: int) -> str:
    """Name the devices, with their machines unless all are the monitor's own, or count them where they are many.

    Three devices of one machine are many; of several machines, more than `most`.
    """
    named = list(dict.fromkeys(host for host, _ in devices))
    if len(devices) > (most if len(named) > 1 else 2):
        count = snapshot.machines
        of = f" of {count} machines" if count > 1 else f" of {named[0]}" if named[0] else ""
        return f"{len(devices)} devices{of}"
    if len(devices) == 2 and len(named) == 1 and named[0]:
        words = [hosts.device_words("", device, named=False) for _, device in devices]
        return f"{words[0]} and {words[1]} of {named[0]}"
    words = [hosts.device_words(host, device, named=named != [""]) for host, device in devices]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


# ---------------------------------------------------------------- before the first verdict


def awaited(analysis: Analysis) -> str:
    """Return what the first verdict waits for and for about how long; empty where there is one, or none comes."""
    snapshot, curve = analysis.snapshot, analysis.curve
    if curve is not None and snapshot.experiment is not None and not snapshot.experiment.over:
        return f"crossover: {curve.text}"
    lanes = [lane for lane in snapshot.lanes if lane.phase not in (FAILED, ABSENT)]
    answered = analysis.verdict.ratio is not None or unlike_phases(lanes)
    if answered or len(lanes) < 2 or any(lane.over for lane in lanes):
        return ""
    waiting = [lane for lane in lanes if lane.phase in lifecycle.STAGES and not lane.points]
    if any(lane.phase != lifecycle.STAGES[-1] for lane in waiting):
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
        return f"{what}; the race goes on after what is being tried"
    if told := unfinished(lanes, snapshot.at_ns)[0]:
        what = told
    left_s = seconds_to_verdict(snapshot, lanes)
    return what if left_s is None else f"{what}; verdict in about {max(1, math.ceil(left_s))} s"


def _rounds(lanes: Sequence[LaneState]) -> set[int]:
    """Return the rounds that all lanes have measured."""
    return set.intersection(*({one.round for one in lane.slices} for lane in lanes))


def seconds_to_verdict(snapshot: Snapshot, lanes: Sequence[LaneState]) -> float | None:
    """Return about how long the rounds take that an interval still needs; None while that is not known."""
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
    """Return the mode or the knob that was changed last, if the measurement began again for it."""
    started_ns = snapshot.race.started_ns or 0
    latest = max(
        (mark for lane in lanes for mark in lane.knob_marks[-1:]), key=lambda mark: mark.at_ns, default=None
    )
    if latest is not None and latest.text == MODE_MARKS[snapshot.race.mode]:
        return f"now {latest.text}"
    found: dict[str, list[str]] = {}
    least = least_rounds(snapshot.race)
    for lane in lanes:
        for mark in lane.knob_marks[-1:]:
            knob = mark.text.partition(" ")[0]
            if knob in lane.settings and mark.at_ns > started_ns and len(lane.slices) < least:
                found.setdefault(knob, []).append(lane.spec.id)
    told = [f"{knob.replace('_', ' ')} of {' and '.join(ids)}" for knob, ids in found.items()]
    return f"{', '.join(told)} changed" if told else ""
