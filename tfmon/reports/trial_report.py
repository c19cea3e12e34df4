"""The answer of a trial as text and JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmon import units
from tfmon.analysis.result import RaceResult
from tfmon.analysis.trial_answer import Trial
from tfmon.model import codec
from tfmon.reports import DASH, common_keys


def to_text(trial: Trial, race: RaceResult | None = None) -> str:
    """Return the answer and figures."""
    lines = [trial.text, "", f"change     {trial.change}{': ' * bool(trial.files)}{', '.join(trial.files)}"]
    rows = (
        ("first step", trial.first_step_s, units.duration),
        ("whole run", trial.run_s, units.duration),
        ("memory", trial.peak_bytes, units.memory),
        ("steps", trial.steps, units.count),
        ("examples", trial.examples, units.count),
        ("last loss", trial.last_loss, units.loss),
    )
    lines += [f"{name:10} {_both(pair, write)}" for name, pair, write in rows if any(pair)]
    lines += [f"note       {note}" for note in trial.notes]
    if trial.view:
        lines.append(f"files      {trial.view}")
    if race is not None and race.recording is not None:
        lines.append(f"recording  {race.recording}")
    return "\n".join(lines)


def _both(pair: tuple[Any, Any], write: Callable[[Any], str]) -> str:
    return " → ".join(DASH if value is None else write(value) for value in pair)


def to_json(trial: Trial, race: RaceResult | None = None) -> dict[str, Any]:
    """Return the answer and the race's result."""
    raced = race.to_json() if race is not None else None
    return {**common_keys(), "exit_code": trial.exit_code, **codec.to_json(trial), "race": raced}
