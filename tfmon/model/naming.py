"""What lanes are called: by their device and every setting in which they differ now. Pure.

The session keeps `LaneState.differs` and `LaneState.mark` up to date: title, table, verdict and JSON agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tfmon.model.knobs import KnobValue
from tfmon.model.lane_state import LaneState
from tfmon.model.race import Race
from tfmon.model.spec import LaneSpec, title


def contrast(specs: Sequence[LaneSpec]) -> frozenset[str]:
    """Return the knobs in which the lanes were started to differ, by their specs."""
    knobs = {knob for spec in specs for knob in spec.settings}
    return frozenset(knob for knob in knobs if len({_kept(spec.settings.get(knob)) for spec in specs}) > 1)


def differing(lanes: Sequence[LaneState], race: Race) -> tuple[str, ...]:
    """Return the knobs in which any two lanes differ now: those of the contrast first, then as the scenario lists.

    A knob that a lane has not reported counts as its spec says.
    """
    started = contrast([lane.spec for lane in lanes])
    found = []
    for knob in {knob: None for lane in lanes for knob in lane.in_effect}:
        values = [lane.in_effect[knob] for lane in lanes if knob in lane.in_effect]
        unknown = len(values) < len(lanes)
        if len(set(map(_kept, values))) > 1 or (unknown and knob in started):
            found.append(knob)
    order = {knob.name: place for place, knob in enumerate(race.knobs)}
    return tuple(sorted(found, key=lambda knob: (knob not in started, order.get(knob, len(order)), knob)))


def also_differing(lanes: Sequence[LaneState]) -> tuple[str, ...]:
    """Return the knobs besides the contrast in which the lanes differ now; empty where the contrast is all."""
    started = contrast([lane.spec for lane in lanes])
    return tuple(knob for knob in (lanes[0].differs or () if lanes else ()) if knob not in started)


def ordered_settings(lane: LaneState) -> list[tuple[str, KnobValue, bool]]:
    """Return the settings of a lane in effect as (knob, value, whether the lanes differ in it), those first."""
    values, differs = lane.in_effect, lane.differs or ()
    first = [(knob, values[knob], True) for knob in differs if knob in values]
    return first + [(knob, value, False) for knob, value in values.items() if knob not in differs]


def named(lanes: tuple[LaneState, ...], race: Race) -> tuple[LaneState, ...]:
    """Return the lanes with the names that tell them apart now; the same objects where no name changes."""
    differs = differing(lanes, race)
    titles = [title(lane.spec, lane.settings, differs) for lane in lanes]
    alike = Counter(titles)
    marks = [f"#{lane.spec.id}" if alike[text] > 1 else "" for lane, text in zip(lanes, titles, strict=True)]
    return tuple(
        lane if (lane.differs, lane.mark) == (differs, mark) else replace(lane, differs=differs, mark=mark)
        for lane, mark in zip(lanes, marks, strict=True)
    )


def _kept(value: KnobValue | None) -> tuple[str, KnobValue | None]:
    """Tell 1 from True, which Python takes for equal."""
    return type(value).__name__ if isinstance(value, bool) else "", value
