"""Why a lane is slow: observed causes, or untried changes that often help."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tfmon import units
from tfmon.analysis.batch_memory import BatchMemory, batch_memory
from tfmon.analysis.cause_kinds import EPOCHS, INPUT_SYMPTOMS, KINDS, OBSERVED, OF_STEP, RUNS, SUPPOSED, CauseKind
from tfmon.analysis.health import growth_of
from tfmon.analysis.shares import Whole, shares_of, whole_of
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.knobs import (
    BATCH_SIZE,
    CACHE,
    LEVERS,
    MIXED_PRECISION,
    PREFETCH,
    STEPS_PER_EXECUTION,
    VARIANT,
    Knob,
    KnobError,
    KnobValue,
    short_name,
    show,
)
from tfmon.model.lane_events import CauseSeen
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import known
from tfmon.model.spec import obstacle

SMALL_BATCH = 32
"""Below this size, a larger batch is suggested first."""
BATCH_FACTOR = 4
EXPLAINED = 0.5
"""Share of a pipeline's work that explains its waits."""
SHORT_EPOCH_S = 10.0
"""For shorter epochs, a cache is suggested first."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a lane is slow."""

    id: str
    advice: str
    code: tuple[str, ...]
    knob: str | None = None
    value: KnobValue | None = None
    by_hand: bool = False
    """Whether only a change of the code helps."""
    effect: str | None = None
    text: str = ""
    brief: str = ""
    place: str = ""
    """File, line and text."""
    count: int = 0
    cost_s: float | None = None
    share_pct: float | None = None
    gain_s: float | None = None
    gain_pct: float | None = None
    wasted_pct: float | None = None
    """Unused or repeated share of the work."""

    @property
    def can_try(self) -> bool:
        """Whether the remedy can be tried during training."""
        return self.knob is not None and not self.by_hand and self.effect is None

    @property
    def remedy(self) -> str:
        """Text such as "prefetch auto (make batches while the step runs)"."""
        if self.knob is None or (self.by_hand and not any(lever.name == self.knob for lever in LEVERS)):
            return self.advice
        return f"{setting_text(self.knob, self.value)} ({self.advice})"


def setting_text(knob: str, value: object) -> str:
    """Return text such as "prefetch auto"."""
    return f"{short_name(knob)} {show(value)}"


def causes_of(lane: LaneState, kinds: Iterable[str] = (), knobs: Sequence[Knob] = ()) -> tuple[Cause, ...]:
    """Return the observed causes, then the supposed causes."""
    whole = whole_of(lane)
    seen = sorted(_without_symptoms(lane.script.causes), key=lambda cause: -cause.cost_ns)
    known_causes = [cause for cause in seen if cause.cause in KINDS and _matters(cause, lane, whole)]
    observed = [_observed(cause, lane, whole, knobs) for cause in known_causes]
    observed_ids, lines = {cause.id for cause in observed}, {line for cause in observed for line in cause.code}
    supposed = dict.fromkeys(cause for kind in kinds for cause in _supposed(kind, lane, knobs))
    shares, of_input = shares_of(lane), [cause for cause in observed if KINDS[cause.id].of_input]
    waits = whole.steps * (known(shares.input_pct) or 0.0) if shares is not None else 0.0
    explained = bool(of_input) and explains(of_input, waits)
    of_step = any(KINDS[cause.id].of_step for cause in observed)
    causes = list(observed)
    for cause in supposed:
        known_input = explained and (cause.by_hand or lane.over) and cause.id.startswith("input_")
        repeats = cause.id in observed_ids or not lines.isdisjoint(cause.code)
        if not (known_input or repeats or (of_step and cause.id in OF_STEP)):
            causes.append(cause)
    return tuple(causes)


def _without_symptoms(causes: Sequence[CauseSeen]) -> Iterator[CauseSeen]:
    of_input = min(1.0, sum(cause.figures.get("of_input", 0.0) for cause in causes if cause.cost_ns))
    for cause in causes:
        if cause.cause in INPUT_SYMPTOMS and of_input >= EXPLAINED:
            continue
        waits = cause.cause in INPUT_SYMPTOMS
        yield replace(cause, cost_ns=round(cause.cost_ns * (1.0 - of_input * waits)))


def explains(causes: Iterable[Cause], pct: float) -> bool:
    """Return whether observed causes take at least half of `pct`."""
    observed = (cause for cause in causes if cause.count and cause.id != "iterator_freed")
    return sum(cause.share_pct or 0.0 for cause in observed) >= pct / 2


def _traits(lane: LaneState, seen: CauseSeen | None = None) -> frozenset[str]:
    script, progress = lane.script, lane.script.progress
    traits = {*script.step_traits, *script.input_traits, *(() if lane.over else (RUNS,))}
    if seen is not None:
        traits |= {OBSERVED, f"of {seen.subject.partition('(')[0]}"}
        traits |= {name for name, figure in seen.figures.items() if figure}
    if progress is not None and (progress.epochs > 1 or progress.epochs_done):
        traits.add(EPOCHS)
    return frozenset(traits)


def _matters(seen: CauseSeen, lane: LaneState, whole: Whole) -> bool:
    kind = KINDS[seen.cause]
    if kind.knob and lane.settings.get(kind.knob) in kind.values:
        return False
    if seen.cause == "memory_objects" and growth_of(lane.tree.memory.points) is None:
        return False
    # In a short run, the start takes most of the time.
    share = seen.cost_ns / seen.of_ns if seen.of_ns else whole.share(seen)
    costs = seen.cost_ns >= 1e9 * kind.least_s and share >= kind.least_share
    return costs and seen.count >= kind.least_count and bool(kind.advice(_traits(lane, seen))[0])


def _observed(seen: CauseSeen, lane: LaneState, whole: Whole, knobs: Sequence[Knob]) -> Cause:
    kind = KINDS[seen.cause]
    title, text = kind.title.replace("{subject}", seen.subject or "a function"), ""
    cost_s = share_pct = gain_s = gain_pct = None
    if seen.cost_ns:
        cost_s, share_pct = seen.cost_ns / 1e9, 100 * whole.share(seen)
        activity = "waiting for it" if kind.of_input else "that"
        text = f"; {activity} took {units.duration(cost_s)}, {units.percent(share_pct)} of {whole.name}"
        gain = seen.figures.get("gain", kind.gain)
        if gain is not None:
            gain_s, gain_pct = gain * cost_s, gain * share_pct
            gives = (
                f"about {units.duration(gain_s)}, {units.percent(gain_pct)}" if gain > 0 else "nothing in this run"
            )
            text += f"; fixing it saves {gives}"
    times = f", {units.count(seen.count)} times" if seen.count > 1 and seen.cost_ns else ""
    text = f"{title}{times}{f': {seen.what}' if seen.what else ''}{text}"
    share = units.percent(share_pct) if share_pct is not None else ""
    where = ", ".join(filter(None, (seen.place.partition(" ")[0], share)))
    mends, code = kind.advice(_traits(lane, seen))
    value = kind.values[0] if kind.values else None
    by_hand = bool(kind.knob) and _find(knobs, kind.knob) is None
    return Cause(
        id=seen.cause,
        text=f"{text} ({seen.place})" if seen.place else text,
        advice=mends,
        code=code if value is None else code_of(lane, kind.knob, value, by_hand=by_hand),
        knob=kind.knob or None,
        value=value,
        by_hand=by_hand,
        brief=title + (f" ({where})" if where else ""),
        place=seen.place,
        count=seen.count,
        cost_s=cost_s,
        share_pct=share_pct,
        gain_s=gain_s,
        gain_pct=gain_pct,
        wasted_pct=100 * seen.figures["wasted"] if "wasted" in seen.figures else None,
    )


def _supposed(bottleneck: str, lane: LaneState, knobs: Sequence[Knob]) -> list[Cause]:
    result = []
    tensorflow, script, traits = lane.process.versions["tensorflow"], lane.script.command, _traits(lane)
    for id in SUPPOSED.get(bottleneck, ()):
        kind = KINDS[id]
        knob = _find(knobs, kind.knob)
        of_tensorflow = bool(script and tensorflow)
        if of_tensorflow and not (kind.supposed_with(traits) and (kind.knob or not kind.title)):
            continue  # it would have been observed
        by_hand = knob is None and kind.knob not in (BATCH_SIZE.name, VARIANT.name, STEPS_PER_EXECUTION.name)
        if knob is None and not (by_hand and tensorflow and (script or not kind.knob)):
            continue
        for value in _values(kind, knob, lane):
            if lane.settings.get(kind.knob) == value or not _makes_sense(lane, kind.knob, value):
                continue
            mends, code = kind.advice(traits)
            if kind.knob:
                code = code_of(lane, kind.knob, value, by_hand=by_hand)
            result.append(Cause(id, mends, code, kind.knob or None, value if kind.knob else None, by_hand))
    first, size, trained = [], lane.settings.get(BATCH_SIZE.name), lane.steady
    if isinstance(size, int) and size < SMALL_BATCH:
        first.append(BATCH_SIZE.name)
    if lane.process.data_examples is not None and trained.examples:
        epoch_ns = lane.process.data_examples / trained.examples * trained.span_ns
        first += [CACHE.name] if epoch_ns < 1e9 * SHORT_EPOCH_S else []
    return sorted(result, key=lambda cause: first.index(cause.knob) if cause.knob in first else len(first))


def _values(kind: CauseKind, knob: Knob | None, lane: LaneState) -> Iterable[KnobValue]:
    if kind.knob == VARIANT.name and knob is not None:
        return knob.remedies
    if kind.knob == BATCH_SIZE.name and knob is not None:
        return _larger_batch(knob, lane)
    return kind.values or (True,)


def _makes_sense(lane: LaneState, knob: str, value: KnobValue) -> bool:
    if knob in (PREFETCH.name, MIXED_PRECISION.name) and lane.settings.get(knob, "off") != "off":
        return False  # the lane does so already
    if knob == "xla" and not lane.settings.get("graph", True):
        return False
    if knob != BATCH_SIZE.name and obstacle({**lane.settings, knob: value}, lane.spec.devices):
        return False
    computes = {"bfloat16": lane.process.bfloat16, "float16": False}
    return lane.spec.kind != "cpu" or computes.get(str(value), True)


def _larger_batch(knob: Knob, lane: LaneState) -> tuple[KnobValue, ...]:
    value = lane.settings.get(BATCH_SIZE.name)
    if not isinstance(value, int):
        return ()
    larger = max(SMALL_BATCH, value * BATCH_FACTOR)
    if lane.process.data_examples is not None:
        larger = min(larger, lane.process.data_examples)
    memory = batch_memory(lane)
    while larger > value and isinstance(memory, BatchMemory) and memory.fits(larger) is False:
        larger //= 2
    try:
        return (knob.check(larger),) if larger > value else ()
    except KnobError:
        return ()


def _find(knobs: Sequence[Knob], name: str) -> Knob | None:
    return next((knob for knob in knobs if knob.name == name), None)


def code_of(lane: LaneState | None, knob: str, value: KnobValue, *, by_hand: bool = False) -> tuple[str, ...]:
    """Return the code that sets a knob, or offers a script's knob."""
    script = lane is not None and bool(lane.script.command)
    kind = next((candidate for candidate in KINDS.values() if candidate.knob == knob), CauseKind())
    begin, end = "options = tf.data.Options()", "dataset = dataset.with_options(options)"
    if lane is not None and script and not lane.process.versions["tensorflow"]:
        return (f'{knob} = report.knob("{knob}", {value!r})',)
    if kind.knob and (not kind.values or value in kind.values):
        device = lane.spec.place if lane is not None else ""
        lever = by_hand and script and any(lever_knob.name == knob for lever_knob in LEVERS)
        more = (f"# to try it: --lane {device} --lane {device},{knob}={show(value)}",) if lever else ()
        _, code = kind.advice(() if lane is None else _traits(lane))
        return (*(line.replace("{value}", show(value)) for line in code), *more)
    match knob:
        case "prefetch" if value == "off":
            return begin, "options.experimental_optimization.inject_prefetch = False", f"{end}  # at its end"
        case "prefetch":
            return (f"dataset = dataset.prefetch({value})  # at its end",)
        case "input_threads":
            threads = 0 if value == "auto" else value
            return begin, f"options.threading.private_threadpool_size = {threads}", end
        case "learning_rate":
            return (f"optimizer.learning_rate = {show(value)}  # or where the optimizer is made",)
    if script:
        return (f'{knob} = report.knob("{knob}", {value!r})',)
    return (f"# {knob} = {show(value)} in the scenario",)


def code_to_keep(lane: LaneState, knobs: Sequence[Knob]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each changed value of a script's lane, and its code."""
    for knob in knobs if lane.script.command else ():
        value = lane.settings.get(knob.name, knob.default)
        if value != knob.default and knob.name != "stop_after_epoch":
            yield setting_text(knob.name, value), code_of(lane, knob.name, value)
