"""Tunings and their attempts, made from the settings before and after each change."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tfmon.analysis.tuning_trials import tuning_of
from tfmon.model.knobs import Settings
from tfmon.model.series import Attempt, Change, SeriesState


def tried(
    lane: str, before: Settings, after: Settings, *, change: dict[str, Any] | None = None, **more: Any
) -> Attempt:
    """Return the attempt of a change on a lane; `change` has other fields of its `Change`."""
    settings = {knob: value for knob, value in after.items() if before.get(knob) != value}
    return Attempt(0, "", settings, Change(lane, dict(before), **(change or {})), **more)


def tuning(
    lane: str,
    everything: bool = False,
    attempts: Sequence[Attempt] = (),
    first: int = 0,
    total: Attempt | None = None,
    **more: Any,
) -> SeriesState:
    """Return a tuning with these attempts; `total` is the one of all kept changes together."""
    whole = [] if total is None else [replace(total, change=replace(total.of_lane, whole=True))]
    numbered = [replace(one, number=number) for number, one in enumerate([*attempts, *whole])]
    return replace(tuning_of(lane, numbered, everything=everything), first=first, **more)
