"""The health of a lane's training, and the faults with their times."""

from __future__ import annotations

import functools
import itertools
import math
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, median, stdev
from typing import get_args

from tfmon import units
from tfmon.analysis.concern_ids import ConcernId
from tfmon.analysis.finish import loss_scatter
from tfmon.analysis.intervals import student
from tfmon.analysis.shares import LEAST_TRACES, Whole, whole_of
from tfmon.analysis.speed_changes import slowdown_of
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.lane_events import CauseSeen, middle_ns, quantile_ns
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import Estimate, known
from tfmon.model.session import Snapshot
from tfmon.model.speed import LEAST_BLOCKS

TIMES_MEDIAN = 10
"""Steps longer than this multiple of the median are waits."""
LEAST_SHARE = 0.05
LEAST_WAITS, EVEN, LATELY_NS = 3, 1.25, 300_000_000_000
FIRST_BATCHES = "each epoch waits for its first batch"
TRACING_SHARE = 0.2
LOWER_RATE = "a lower learning rate may help"
CHECK_NUMERICS = "tf.debugging.enable_check_numerics() names the operation"
SMOOTH, LEAST_LOSSES, FLAT_LOSSES = 8, 24, 64
FAR, BACK = 8.0, 0.5
"""A loss diverges at this multiple of its scatter above the best, with this share of the gain lost."""
LAST_EPOCHS, RISEN, SCATTERS = 3, 0.25, 2
"""The validation loss rises by a share of its best and a multiple of its scatter."""
GROUPS, LEAST_SAMPLES, LEAST_GROWTH = 8, 32, 0.02
FORECAST_NS, EARLY_GROWTH = 120_000_000_000, 0.25
"""In a shorter time, memory must grow by more: a framework allocates at first."""
WIDEST_RATIO = 10
MANY_TRACES = 20
SOON_S = 86_400.0

LESSER = ("waits", "loss_flat")
"""Concerns that a large loss of time can explain."""
FACTS = ("loss_flat",)


@dataclass(frozen=True, slots=True)
class Concern:
    """A fault or fact of a lane's training."""

    id: ConcernId
    text: str
    at_s: float | None = None
    """Start, from the start signal. `None` for all of the time."""

    @property
    def is_fault(self) -> bool:
        """Whether a training with this concern is unhealthy."""
        return self.id not in FACTS


@dataclass(frozen=True, slots=True)
class Waits:
    """Steps that took far longer than the others."""

    steps: int
    share: float
    longest_s: float
    every_s: float | None = None
    """Period in the last five minutes, if regular."""


def waits_of(lane: LaneState) -> Waits | None:
    """Return the waits since the last knob change."""
    bins = {} if "steps" in lane.script.not_measured else lane.steady.histogram
    median_ns = quantile_ns(bins, 0.5)
    if median_ns is None:
        return None
    longest_ns = middle_ns(max(bins))
    if longest_ns <= TIMES_MEDIAN * median_ns:
        return Waits(0, 0.0, longest_ns / 1e9)
    times_ns = [(middle_ns(bin_), count) for bin_, count in bins.items()]
    long = [(time_ns, count) for time_ns, count in times_ns if time_ns > TIMES_MEDIAN * median_ns]
    total_ns, long_ns = (sum(time_ns * count for time_ns, count in some) for some in (times_ns, long))
    steps, share = sum(count for _, count in long), long_ns / total_ns
    others_ns = (total_ns - long_ns) / (sum(bins.values()) - steps)
    every_s = _every_s(lane, others_ns, long_ns / steps) if share >= LEAST_SHARE else None
    return Waits(steps, share, longest_ns / 1e9, every_s)


def _every_s(lane: LaneState, others_ns: float, wait_ns: float) -> float | None:
    windows = lane.measurements.steady_points
    windows = [window for window in windows if window.at_ns > lane.points[-1].at_ns - LATELY_NS]
    long = [window for window in windows if window.span_ns - window.steps * others_ns > wait_ns / 2]
    gaps_ns = [later.at_ns - earlier.at_ns for earlier, later in itertools.pairwise(long)]
    if len(long) < LEAST_WAITS or long[-1].in_slice or max(gaps_ns) > EVEN * min(gaps_ns):
        return None
    return fmean(gaps_ns) / 1e9


def retraces_of(lane: LaneState, whole: Whole) -> tuple[int, float]:
    """Return the number and share of a lane's repeated traces."""
    seen = [cause for cause in lane.script.causes if cause.cause.startswith("retrace_") and cause.of_ns]
    if seen:
        return sum(cause.count for cause in seen), min(1.0, sum(map(whole.share, seen)))
    steady = lane.steady
    return steady.traced_steps, whole.steps * steady.traced_ns / steady.span_ns if steady.span_ns else 0.0


def concerns(snapshot: Snapshot, lane: LaneState) -> tuple[Concern, ...]:
    """Return the concerns of a lane, the worst first, then facts."""
    result = {concern.id: concern for concern in _find(snapshot, lane)}
    return tuple(result[arg] for arg in get_args(ConcernId) if arg in result)


def _find(snapshot: Snapshot, lane: LaneState) -> Iterator[Concern]:
    waits, began_ns = waits_of(lane), snapshot.race.started_ns or lane.process.started_ns

    def since_s(at_ns: int) -> float:
        return max(0, at_ns - began_ns) / 1e9

    def at(at_ns: int) -> str:
        return units.clock(since_s(at_ns))

    still_s = snapshot.stands_still_s(lane)
    if still_s is not None:
        before = f"; the longest before took {units.duration(waits.longest_s)}" if waits is not None else ""
        text = f"no step has ended for {units.duration(still_s)}{before}{_position_text(lane)}"
        yield Concern("stands_still", text, since_s(lane.points[-1].at_ns))
    if lane.tree.deaths:
        first = lane.tree.deaths[0]
        more = f"; {len(lane.tree.deaths) - 1} more were" if len(lane.tree.deaths) > 1 else ""
        names = {Signal.value: Signal.name for Signal in signal.Signals}
        by = names.get(first.signal, f"signal {first.signal}")
        text = f"a child process, PID {first.pid}, was killed by {by} at {at(first.at_ns)}{more}"
        yield Concern("child_killed", text, since_s(first.at_ns))
    yield from _of_loss(lane)
    yield from _of_validation(lane)
    yield from _of_memory(snapshot, lane, since_s)
    change = slowdown_of(lane)
    if change is not None:
        kind: ConcernId = "cores_taken" if change.cause == "cores" else "slower"
        text = f"{change.text} ({at(change.at_ns)}); {change.why}".rstrip("; ")
        yield Concern(kind, text, since_s(change.at_ns))
    if lane.process.bad_lines:
        lines = units.several(lane.process.bad_lines, "unreadable line")
        yield Concern("lines_skipped", f"{lines} skipped, so steps may be missing: {lane.process.last_bad_line}")
    steady, whole = lane.steady, whole_of(lane)
    traces, traced = retraces_of(lane, whole)
    if traces >= LEAST_TRACES and traced >= TRACING_SHARE:
        text = f"{units.several(traces, 'trace')} took {units.percent(100 * traced)} of {whole.name}"
        named = any(cause.cause.startswith("retrace_") for cause in lane.script.causes)
        yield Concern("retraces", text + (f": {lane.step.traced}" if lane.step.traced and not named else ""))
    elif (batches := _first_batches(lane, waits)) is not None:
        share = units.percent(100 * whole.share(batches))
        text = f"{FIRST_BATCHES}, {units.several(batches.count, 'time')}: {share} of {whole.name}"
        yield Concern("waits", text)
    elif waits is not None and waits.share >= LEAST_SHARE:
        steps, share = units.several(waits.steps, "step"), units.percent(100 * waits.share * whole.steps)
        every = f", every {units.seconds(waits.every_s)}" if waits.every_s is not None else ""
        took = f"{steps} of {units.count(steady.steps)} took {share} of {whole.name}"
        each = f"more than {TIMES_MEDIAN} times the median each and up to {units.duration(waits.longest_s)}"
        yield Concern("waits", f"{took}, {each}{every}")


def _first_batches(lane: LaneState, waits: Waits | None) -> CauseSeen | None:
    if waits is None or waits.share < LEAST_SHARE:
        return None
    for cause in lane.script.causes:
        many = cause.of_ns and 2 * cause.count >= waits.steps and cause.cost_ns >= LEAST_SHARE * cause.of_ns
        if cause.cause == "epoch_batch" and many:
            return cause
    return None


_FRAME = re.compile(r'\s+File "([^"]+)", line (\d+) in (.+)')
_LIBRARY = re.compile(r"/lib/python|/site-packages/|/tfmon/(script|report)|^<")
_WAITS_FOR = {
    "queue": "a queue", "queues": "a queue of another process", "connection": "another process",
    "popen_fork": "a child process", "subprocess": "a child process", "synchronize": "a lock of another process",
    "threading": "a lock or another thread", "socket": "the network", "ssl": "the network",
    "selectors": "the network", "func_graph": "a function that is traced", "collective_ops": "the other devices",
}  # fmt: skip


def _position_text(lane: LaneState) -> str:
    if lane.process.stack is None or not lane.points:
        return ""
    if lane.process.stack.at_ns < lane.points[-1].at_ns and lane.end.stood_still_s is None:
        return ""  # it has trained since
    frames: list[tuple[str, str, str]] = []
    for line in lane.process.stack.lines[1:]:
        result = _FRAME.match(line)
        if result is None:
            break
        frames.append((result[1], result[2], result[3]))
    script_frame = next((frame for frame in frames if not _LIBRARY.search(frame[0])), None)
    modules = [path.rpartition("/")[2].removesuffix(".py") for path, _, _ in frames]
    waits = next((_WAITS_FOR[module] for module in modules if module in _WAITS_FOR), "")
    if script_frame is None:
        return ""
    path, line, function = script_frame
    position = f"; it stands at {path.rpartition('/')[2]}:{line} in {function}"
    return position + (f", and waits for {waits}" if waits else "")


def _of_loss(lane: LaneState) -> Iterator[Concern]:
    losses = lane.totals.losses
    if losses.last is None:
        return
    if not math.isfinite(losses.last):
        step, helps = units.count(losses.lost), [LOWER_RATE]
        helps += [CHECK_NUMERICS] if lane.process.versions["tensorflow"] else []
        text = f"the loss is {losses.last}, from step {step} on at the latest"
        yield Concern("loss_lost", "; ".join([text, *helps]))
        return
    now, best, where = _course_of(losses.points)
    if best is not None:
        before = f"{units.loss(best)} about step {units.count(where)}, its best"
        yield Concern("loss_diverges", f"the loss is {units.loss(now)}, and was {before}; {LOWER_RATE}")
    elif where >= 0:
        loss_text = f"about {units.loss(now)}, as {units.several(lane.totals.steps - where, 'step')} before"
        yield Concern("loss_flat", f"the loss stays level: {loss_text}")


def _of_validation(lane: LaneState) -> Iterator[Concern]:
    points = [(epoch, loss) for epoch, loss in lane.script.validation.points if math.isfinite(loss)]
    if len(points) <= LAST_EPOCHS:
        return
    epoch, best = min(points, key=lambda point: point[1])
    risen = min(loss for _, loss in points[-LAST_EPOCHS:]) - best
    scatter = loss_scatter(tuple(point for point in points if point[0] >= epoch))
    if risen > max(RISEN * abs(best), SCATTERS * scatter):
        before = f"{units.loss(best)} after epoch {epoch}, its best"
        helps = "keras.callbacks.EarlyStopping(restore_best_weights=True) keeps the best weights"
        text = f"the loss of validation is {units.loss(points[-1][1])}, and was {before}; {helps}"
        yield Concern("validation_rises", text)


@functools.lru_cache(maxsize=64)
def _course_of(losses: tuple[tuple[int, float], ...]) -> tuple[float, float | None, int]:
    """Return the present loss, the best loss if the loss has diverged, and a step.

    The step is that of the best loss, the start of a flat course, or -1.
    """
    points = [(step, loss) for step, loss in losses if math.isfinite(loss)]
    if len(points) < LEAST_LOSSES:
        return 0.0, None, -1
    starts = range(0, len(points) - SMOOTH + 1, SMOOTH // 2)
    smooth = [median(loss for _, loss in points[start : start + SMOOTH]) for start in starts]
    best, now, scatter = min(smooth), median(loss for _, loss in points[-SMOOTH:]), loss_scatter(losses)
    if now - best > max(FAR * scatter, BACK * (smooth[0] - best)) and now > best:
        return now, best, points[starts[smooth.index(best)]][0]
    since = _flat_since(points, scatter)
    return now, None, -1 if since is None else since


def _flat_since(points: Sequence[tuple[int, float]], scatter: float) -> int | None:
    for start in (0, len(points) // 4, len(points) // 2):
        tail = [loss for _, loss in points[start:]]
        if len(tail) < FLAT_LOSSES:
            return None
        thirds = [median(tail[len(tail) * part // 3 : len(tail) * (part + 1) // 3]) for part in range(3)]
        if max(thirds) - min(thirds) <= 4 * scatter / math.sqrt(len(tail) / 3):
            return points[start][0]
    return None


@functools.lru_cache(maxsize=64)
def growth_of(points: tuple[tuple[int, float], ...]) -> Estimate | None:
    """Return the growth a second, if samples grow steadily.

    The first quarter does not count. The slope is the mean between `GROUPS` successive means.
    """
    if len(points) < LEAST_SAMPLES:
        return None
    forecast, points = _can_forecast(points), points[len(points) // 4 :]
    edges = [len(points) * index // GROUPS for index in range(GROUPS + 1)]
    groups = [points[edges[index] : edges[index + 1]] for index in range(GROUPS)]
    middles = [(fmean(at for at, _ in group) / 1e9, fmean(value for _, value in group)) for group in groups]
    pairs = itertools.pairwise(middles)
    slopes = [(value - before) / (at - then) for (then, before), (at, value) in pairs]
    reach = student(0.05, len(slopes) - 1) * stdev(slopes) / math.sqrt(len(slopes))
    slope = fmean(slopes)
    grown = middles[-1][1] - middles[0][1]
    wide = slope + reach > WIDEST_RATIO * (slope - reach)
    least = (LEAST_GROWTH if forecast else EARLY_GROWTH) * middles[0][1]
    if wide or min(slopes[-GROUPS // 2 :]) <= 0 or grown < least:
        return None
    return Estimate(slope, slope - reach, slope + reach, len(points))


def _can_forecast(points: tuple[tuple[int, float], ...]) -> bool:
    return points[-1][0] - points[len(points) // 4][0] >= FORECAST_NS


def _of_memory(snapshot: Snapshot, lane: LaneState, since_s: Callable[[int], float]) -> Iterator[Concern]:
    sample, gpu = snapshot.place_of(lane).sample, next(iter(snapshot.gpus_of(lane)), None)
    total, used = (known(sample.memory_total_bytes), known(sample.memory_used_bytes)) if sample else (None, None)
    of_gpu = known(gpu.memory.total_bytes) if gpu is not None else None
    for course, free, name, owner in (
        (lane.tree.memory, total - used if total and used is not None else None, "memory", "the machine's"),
        (lane.gpu_use.allocated, of_gpu, "GPU memory", "the GPU's"),
    ):
        growth = growth_of(course.points)
        if growth is None or course.latest is None or free is None:
            continue
        now = course.latest[1]
        left_s = (free - (now if owner != "the machine's" else 0.0)) / growth.value
        if left_s < SOON_S:
            slope = f"{units.memory(growth.value)}/s ({units.memory(growth.low)} to {units.memory(growth.high)})"
            full = f"; at this rate {owner} is full in {units.about(left_s)}"
            full = full if _can_forecast(course.points) else ""
            text = f"{name} grows by {slope}, now {units.memory(now)}{full}{_what_grew(lane)}"
            yield Concern("memory_grows", text, since_s(course.points[len(course.points) // 4][0]))
            return


def _what_grew(lane: LaneState) -> str:
    traces = sum(cause.count for cause in lane.script.causes if cause.cause.startswith("retrace_"))
    if traces >= MANY_TRACES:
        return f"; {units.count(traces)} graphs were traced again, and each stays in memory"
    objects = next((cause for cause in lane.script.causes if cause.cause == "memory_objects"), None)
    if objects is not None:
        return f"; Python keeps more and more objects: {objects.subject}, {objects.what}"
    if not lane.script.command:
        return ""
    return "; what grows was not observed: tracemalloc names the lines of Python that hold memory"


def faults_of(snapshot: Snapshot, lane: LaneState) -> tuple[list[str], list[str]]:
    """Return a lane's worse faults, and the faults in `LESSER`."""
    return _by_weight([concern for concern in concerns(snapshot, lane) if concern.is_fault])


def _by_weight(result: Sequence[Concern]) -> tuple[list[str], list[str]]:
    worse = [concern.text for concern in result if concern.id not in LESSER]
    return worse, [concern.text for concern in result if concern.id in LESSER]


def trained_texts(snapshot: Snapshot, lane: LaneState, loss: str) -> tuple[str, str]:
    """Return the verdict on a single lane, or its error, with all faults and with the worst fault.

    `loss` is the largest avoidable loss of time.
    """
    result, in_loss = concerns(snapshot, lane), FIRST_BATCHES in loss
    result = tuple(concern for concern in result if not (in_loss and FIRST_BATCHES in concern.text))
    if lane.trouble is not None:
        faults = (concern.text for concern in result if concern.id != "stands_still" and concern.is_fault)
        failure = f"{lane.title} {lane.phase}: {lane.trouble.message}{_position_text(lane)}"
        return "; ".join([failure, *faults]), failure
    speed = lane.steady.examples_per_s
    unknown = lane.totals.steps and not lane.totals.examples
    examples = "" if unknown else f", {units.count(lane.totals.examples)} examples"
    done = f"{units.count(lane.totals.steps)} steps{examples}"
    if "steps" in lane.script.not_measured:
        done = "steps n/a"
    rate = "" if speed is None else f"{units.rate(speed)} examples/s"
    worse, lesser = _by_weight(result)
    parts = [*worse, *filter(None, [loss]), *lesser]
    if not loss and not any(concern.is_fault for concern in result) and lane.speed.count > LEAST_BLOCKS:
        since_ns = lane.speed.since_ns or lane.points[-1].at_ns - lane.steady.span_ns
        steady = f"steady for {units.about((lane.points[-1].at_ns - since_ns) / 1e9)}"
        parts.insert(0, f"healthy: {', '.join(filter(None, (rate, steady)))}")
        last = done if lane.over else ""
    else:
        last = ", ".join(filter(None, (done, rate)))
    whole, brief = ("; ".join(filter(None, (*some, last))) for some in (parts, parts[:1]))
    return f"{lane.title}: {whole}", f"{lane.title}: {brief}"
