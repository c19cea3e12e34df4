"""Which combinations a sweep measures. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from tfmon import units
from tfmon.analysis.crossover import values_of
from tfmon.model.knobs import Knob, KnobError, KnobValue, Settings, find, guess_settings
from tfmon.model.spec import DEVICE_KNOBS, counted
from tfmon.model.sweep import Combination, SweepPlan

MOST_COMBINATIONS = 2_000


def parse_over(knobs: Sequence[Knob] | None, words: Sequence[str]) -> dict[str, tuple[KnobValue, ...]]:
    """Read what `--over` says: `batch_size=32,128`, or `batch_size=16..4096` for powers of two.

    Args:
        knobs: Those of the scenario; None for a script, whose knobs are not known before it runs.
        words: What is given, a knob each.

    Raises: KnobError for what cannot be swept.
    """
    over: dict[str, tuple[KnobValue, ...]] = {}
    for word in words:
        name, equals, text = (part.strip() for part in word.partition("="))
        if not equals or not name or not text:
            raise KnobError(f"{word!r} is not KNOB=VALUE,VALUE or KNOB=LOW..HIGH")
        knob = next((one for one in DEVICE_KNOBS if one.name == name), None)
        knob = knob or (None if knobs is None else find(knobs, name))
        if name in over:
            raise KnobError(f"{name} is given twice; one list has all its values")
        low, dots, high = text.partition("..")
        values = _range(name, knob, low, high) if dots else _listed(name, knob, text)
        if len(values) < 2:
            raise KnobError(f"{name}={text} is one value; a sweep needs two at least")
        over[name] = values
    if not over:
        raise KnobError("no knob is swept; name one with its values")
    counted(over)
    return over


def _listed(name: str, knob: Knob | None, text: str) -> tuple[KnobValue, ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise KnobError(f"{name}={text} has an empty value")
    values = [guess_settings([f"{name}={word}"])[name] if knob is None else knob.parse(word) for word in words]
    return tuple(dict.fromkeys(values))


def _range(name: str, knob: Knob | None, low: str, high: str) -> tuple[KnobValue, ...]:
    try:
        ends = float(low), float(high)
    except ValueError:
        raise KnobError(f"{name}={low}..{high} is no range of numbers, such as 16..4096") from None
    if not 1 <= ends[0] < ends[1] <= 2**40:
        raise KnobError(f"{name}={low}..{high}: a range goes up through powers of two, from 1 on; or list values")
    return values_of(knob or Knob(name, default=1, help="", low=1), *ends)


def combine(
    plan: SweepPlan, defaults: Settings, check: Callable[[Settings, str], str] = lambda settings, kind: ""
) -> tuple[Combination, ...]:
    """Return all combinations of a plan, on each kind of device, in the order in which they are measured first.

    Args:
        plan: What is swept.
        defaults: The baseline's settings, as far as they are known.
        check: Says why settings are not possible on a kind of device; empty if they are.

    Raises: KnobError for too many.
    """
    count = math.prod(map(len, plan.over.values())) * len(plan.kinds)
    if count > MOST_COMBINATIONS:
        raise KnobError(f"{units.count(count)} combinations are too many; {MOST_COMBINATIONS} is the most")
    grid = [dict(zip(plan.over, values, strict=True)) for values in itertools.product(*plan.over.values())]
    return tuple(
        Combination(
            number,
            kind,
            settings,
            baseline=all(knob in defaults and _same(defaults[knob], value) for knob, value in settings.items()),
            refused=check({**defaults, **settings}, kind),
        )
        for number, (kind, settings) in enumerate(itertools.product(plan.kinds, grid))
    )


def _same(one: KnobValue, other: KnobValue) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)
