"""What a sweep came to, in words and as curves over its numeric knobs. Pure."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from tfmon import units
from tfmon.analysis.scaling import Scaling
from tfmon.analysis.sweep import BASELINE, Found, Row
from tfmon.model.knobs import KnobValue, Settings, show
from tfmon.model.readings import Estimate
from tfmon.model.several import KINDS, counted


def settings_text(settings: Settings) -> str:
    """Name settings as the command line takes them: "batch_size=512 mixed_precision=off"."""
    return " ".join(f"{knob}={show(value)}" for knob, value in settings.items())


def answer(found: Found) -> list[str]:
    """Say which combination is the best, on each kind of device."""
    lines = []
    several = len(found.state.plan.kinds) > 1
    for kind in found.state.plan.kinds:
        where, best = f" on {kind}" if several else "", found.best(kind)
        others = [row for row in found.rows if row.combination.kind == kind and row.outcome != BASELINE]
        if best is None or best.ratio is None or not any(row.ratio for row in others):
            lines.append(f"no combination has a ratio{where}" + ("" if found.over else " yet"))
            continue
        name = settings_text(best.combination.settings)
        if best.ratio.high < 1:
            factor, interval = units.ratio_in(best.ratio.value, best.ratio.low, best.ratio.high)
            line = f"nothing is faster than the baseline{where}; the nearest is {name}, {factor} ({interval})"
        elif best.outcome == BASELINE:
            line = f"best{where}: the baseline, {name}"
        else:
            factor, interval = units.ratio_in(best.ratio.value, best.ratio.low, best.ratio.high)
            line = f"best{where}: {name}, {factor} the baseline's throughput ({interval})"
            if best.ratio.low <= 1:
                known = "found" if found.over else "known yet"
                line = f"no best {known}{where}: the nearest is {name}, {factor} ({interval})"
        rivals = found.rivals(best) if best.ratio.low > 1 or best.outcome == BASELINE else ()
        if len(rivals) == 1:
            line += f"; {settings_text(rivals[0].combination.settings)} is within its error"
        elif rivals:
            line += f"; {len(rivals)} others are within its error"
        if found.over and (unknown := found.without_ratio(kind)):
            line += f"; {unknown} without a ratio may be better"
        if best.learns:
            line += f"; it {learns_text(best)}"
        lines.append(line)
    for one in scaling_of(found):
        _, interval = units.ratio_in(one.ratio.value, one.ratio.low, one.ratio.high)
        lines.append(one.text(f"95 % CI {interval}"))
    return lines


def scaling_of(found: Found) -> list[Scaling]:
    """Return how throughput grows with the devices; empty where that is not swept, or something else is, too."""
    over = found.state.plan.over
    name = counted(over)
    if not name or len(over) > 1:
        return []
    fewest = min(map(int, over[name]))
    return [
        Scaling("", int(row.combination.settings[name]), fewest, KINDS[name], row.ratio)
        for row in found.rows
        if row.ratio is not None and row.outcome != BASELINE
    ]


def troubles(found: Found) -> list[str]:
    """Say which places were lost, and why the sweep ended early."""
    state = found.state
    lost = [f"{place} is not used any more: {why}" for place, why in state.lost.items()]
    return [*lost, f"ended early: {state.ended}"] if state.ended else lost


def learns_text(row: Row) -> str:
    """Say by what a combination trains otherwise than the baseline: "trains differently (other batch size)"."""
    return f"trains differently (other {' and '.join(knob.replace('_', ' ') for knob in row.learns)})"


def progress_text(found: Found) -> str:
    """Say how far a sweep is: "12 of 48 settled, about 20 min left"."""
    left = f", about {units.about(found.left_s)} left" if found.left_s and not found.over else ""
    return f"{found.settled} of {len(found.rows)} settled{left}"


# ---------------------------------------------------------------- curves


@dataclass(frozen=True, slots=True)
class SweepCurve:
    """The ratio over the values of one numeric knob, on one kind of device."""

    knob: str
    kind: str
    values: tuple[KnobValue, ...]
    """From the lowest."""
    series: tuple[tuple[Settings, tuple[Estimate | None, ...]], ...]
    """For each setting of the other knobs, the ratio at each value; the best series first."""


def curves_of(found: Found) -> tuple[SweepCurve, ...]:
    """Return a curve for each knob that is swept over numbers, and each kind of device."""
    plan, curves = found.state.plan, []
    for knob, kind in itertools.product(plan.over, plan.kinds):
        values = [
            value for value in plan.over[knob] if isinstance(value, int | float) and not isinstance(value, bool)
        ]
        if len(values) < 2:
            continue
        series: dict[tuple[KnobValue, ...], dict[KnobValue, Estimate]] = {}
        for row in found.ranked:  # the series with the best one comes first
            settings = row.combination.settings
            if row.combination.kind == kind and row.ratio is not None and settings[knob] in values:
                others = tuple(value for name, value in settings.items() if name != knob)
                series.setdefault(others, {})[settings[knob]] = row.ratio
        names = [name for name in plan.over if name != knob]
        ordered = tuple(sorted(values))
        curves.append(
            SweepCurve(
                knob,
                kind,
                ordered,
                tuple(
                    (dict(zip(names, others, strict=True)), tuple(map(known.get, ordered)))
                    for others, known in series.items()
                ),
            )
        )
    return tuple(curves)
