"""Decides whether a change to a script is kept.

Lane A runs the script as it is, and lane B with the change. The change is kept if B is faster and trains the same.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Literal, TypeAlias

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.analysis.finish import finite_losses, loss_distances, loss_scatter
from tfmon.analysis.intervals import trimmed
from tfmon.analysis.run_account import account_of
from tfmon.errors import EXIT_CANNOT_TELL, EXIT_FINE, EXIT_LANE_FAILED, EXIT_WORSE
from tfmon.model.account import BEFORE, START
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.lane_state import DONE, FAILED, LaneState
from tfmon.model.readings import Estimate, known

Answer: TypeAlias = Literal["keep", "refuse", "not known yet", "failed"]
KEEP: Answer = "keep"
REFUSE: Answer = "refuse"
NOT_YET: Answer = "not known yet"
NO_TRIAL: Answer = "failed"
"""The script fails without the change."""
EXIT_CODES = {KEEP: EXIT_FINE, REFUSE: EXIT_WORSE, NOT_YET: EXIT_CANNOT_TELL, NO_TRIAL: EXIT_LANE_FAILED}
NO_GAIN = 0.25
"""If the steps are equally fast, a run whose interval includes 1 and ends below this gain shows no gain."""
MOST_RUNS = 30
TOLERANCE = 0.01
"""Smaller differences of steps and examples do not count, because the last batch of an epoch is smaller."""
BLOCKS = 4
"""Maximum number of stretches in which losses are compared."""
TOO_FAR = 3.0
"""Losses differ from this multiple of the difference that scatter and seeds explain."""
SMALL, LARGE = 0.01, 0.1
"""Losses that differ by a smaller share are the same. With equal seeds, losses differ above the second share."""
Lengths: TypeAlias = Mapping[str, tuple[int, int | None]]
"""Epochs, and steps of an epoch, in the first `fit` of each lane."""
Runs: TypeAlias = tuple[Sequence[LaneState], Sequence[LaneState]]
"""Further runs of each side, in alternating order. Runs with the same index are a pair."""


@dataclass(frozen=True, slots=True)
class LossDifference:
    """The difference of two runs' losses at the same steps."""

    size: float
    """Root mean square of the mean differences of the stretches."""
    error: float
    """The difference that the scatter within a run explains."""
    loss: float


@dataclass(frozen=True, slots=True)
class Training:
    """Whether both lanes train the same."""

    same: bool | None
    """`None` if unknown."""
    text: str
    differs: bool = False
    """Whether losses differ, or cannot be compared."""
    unclear: bool = False
    """Whether a second run of the script as it is would decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The answer about a change. Pairs of figures are without and with the change."""

    answer: Answer
    text: str
    change: str
    files: tuple[str, ...] = ()
    view: str = ""
    """How the lanes saw different files."""
    steps_factor: Estimate | None = None
    """Speed of the steps with the change over the speed without."""
    run_factor: Estimate | None = None
    """The same for whole runs. `None` from fewer than two pairs."""
    first_step_s: tuple[float | None, float | None] = (None, None)
    """Time from the start of the command to the first step."""
    run_s: tuple[float | None, float | None] = (None, None)
    """Time of the whole run without suspensions."""
    peak_bytes: tuple[int | None, int | None] = (None, None)
    steps: tuple[int, int] = (0, 0)
    examples: tuple[int, int] = (0, 0)
    last_loss: tuple[float | None, float | None] = (None, None)
    same_training: bool | None = None
    training: str = ""
    """How the trainings were compared, or differ."""
    left_s: float | None = None
    notes: tuple[str, ...] = ()
    unclear: bool = field(default=False, metadata={"json": False})
    """Whether a second run of the script as it is would decide."""

    @property
    def exit_code(self) -> int:
        """The exit code of `tfmon try`."""
        return EXIT_CODES[self.answer]


def loss_difference(first: LaneState, second: LaneState) -> LossDifference | None:
    """Return the difference of losses at the same steps. `None` without common steps."""
    few, many = sorted(map(finite_losses, (first, second)), key=len)
    distances = loss_distances(few, many)
    if not distances:
        return None
    blocks = min(BLOCKS, len(distances))
    length = len(distances) // blocks
    means = [statistics.fmean(distances[block * length : (block + 1) * length]) for block in range(blocks)]
    scatter = loss_scatter(tuple(many)) * 2**0.5  # of a difference; few points contain more of the course
    return LossDifference(
        size=math.sqrt(statistics.fmean(mean**2 for mean in means)),
        error=scatter / math.sqrt(length) if blocks == BLOCKS else 0.0,
        loss=statistics.fmean(abs(loss) for _, loss in few),
    )


def compare_training(first: LaneState, second: LaneState, lengths: Lengths, again: Runs = ((), ())) -> Training:
    """Return whether two lanes train the same.

    Args:
        first: The lane without the change.
        second: The lane with the change.
        lengths: The length of each lane's first `fit`.
        again: Further runs of both.
    """
    if text := _other_amount(first, second, lengths):
        return Training(False, text)
    ends = [lane.totals.losses.last for lane in (first, second)]
    finite = [loss is not None and math.isfinite(loss) for loss in ends]
    if None not in ends and finite == [True, False]:
        return Training(False, "its loss is no longer a number")
    as_it_is, changed = (first, *again[0]), (second, *again[1])
    differences = _differences(itertools.product(as_it_is, changed))
    if not differences:
        if ends == [None, None]:
            return Training(None, "the script reports no loss, so only steps and examples are compared")
        return Training(None, "no losses at the same steps to compare", differs=True)
    size = statistics.fmean(difference.size for difference in differences)
    error = statistics.fmean(difference.error for difference in differences)
    loss = statistics.fmean(difference.loss for difference in differences)
    by_seeds = [difference.size for difference in _differences(itertools.combinations(as_it_is, 2))]
    explained, by, least = error, "their scatter explains", 0.0
    if by_seeds:
        explained = statistics.fmean(by_seeds)
        by = f"{len(as_it_is)} runs of the script as it is differ by"
        least = min(error, SMALL * loss)  # runs that report losses of the same steps can differ by 0
    figures = f"losses at the same step differ by {units.loss(size)}, {by} {units.loss(explained)}"
    if size <= max(TOO_FAR * max(explained, least), SMALL * loss):
        return Training(True, f"same steps and examples; {figures}")
    if any(lane.script.resolved.get("seed", "none") == "none" for lane in (first, second)):
        return Training(False if by_seeds else None, figures, differs=True, unclear=not by_seeds)
    # The order of random numbers can change with the order of operations, as with a cache before a shuffle.
    return Training(False if size > LARGE * loss else None, f"{figures}, with equal seeds", differs=True)


def _differences(pairs: Iterable[tuple[LaneState, LaneState]]) -> list[LossDifference]:
    return list(filter(None, itertools.starmap(loss_difference, pairs)))


def _other_amount(first: LaneState, second: LaneState, lengths: Lengths) -> str:
    epochs, batches = lengths.get(first.spec.name, (0, None))
    other_epochs, other_batches = lengths.get(second.spec.name, (0, None))
    sizes = [lane.totals.examples / lane.totals.steps if lane.totals.steps else 0.0 for lane in (first, second)]
    both = ended(first) and ended(second)
    if all(sizes) and not _alike(sizes[0], sizes[1], 0 if both else 1 / (batches or 10)):
        return f"{_number(sizes[1])} instead of {_number(sizes[0])} examples per step"
    if batches and other_batches and abs(batches - other_batches) > 1 and not _alike(batches, other_batches):
        return f"{units.count(other_batches)} instead of {units.count(batches)} steps per epoch"
    if epochs and other_epochs and epochs != other_epochs:
        return f"{other_epochs} instead of {units.several(epochs, 'epoch')}"
    amounts = [(noun, getattr(first.totals, noun), getattr(second.totals, noun)) for noun in ("steps", "examples")]
    for noun, amount, other in amounts if both else ():
        if amount and other and not _alike(amount, other):
            return f"{units.count(other)} instead of {units.count(amount)} {noun}"
    return ""


def _alike(value: float, other: float, more: float = 0.0) -> bool:
    return abs(value - other) <= (TOLERANCE + more) * max(value, other)


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.3g}"


def ended(lane: LaneState) -> bool:
    """Return whether a lane's script ended without a request."""
    return lane.phase == DONE and lane.end.requested is None


def judge_trial(
    analysis: Analysis, lengths: Lengths, change: str, files: tuple[str, ...] = (), again: Runs = ((), ())
) -> Trial:
    """Return the answer about a change of these files."""
    first, second = analysis.snapshot.lanes
    alone = again if again[1] else ((first,), (second,))
    views = analysis.snapshot.race.views.values()
    names = ", ".join(name for view in views for name in view.edited)
    edited = f"files of the folder changed during the race: {names}" if names else ""
    trial = Trial(
        answer=NOT_YET,
        text="",
        change=change,
        files=files,
        view="; ".join(view.text for view in views),
        steps_factor=_steps_factor(analysis),
        run_factor=_run_factor(again),
        first_step_s=(_mean(map(_start_s, alone[0])), _mean(map(_start_s, alone[1]))),
        run_s=(_mean(map(_run_s, alone[0])), _mean(map(_run_s, alone[1]))),
        peak_bytes=(_peak(first), _peak(second)),
        steps=(first.totals.steps, second.totals.steps),
        examples=(first.totals.examples, second.totals.examples),
        last_loss=(first.totals.losses.last, second.totals.losses.last),
        notes=tuple(filter(None, (analysis.verdict.note, edited))),
    )
    for changed, lanes in enumerate(((first, *again[0]), (second, *again[1]))):
        if failed := next((lane for lane in lanes if lane.phase == FAILED), None):
            return _failed(trial, failed, changed=bool(changed))
    training = compare_training(first, second, lengths, again)
    trial = replace(trial, same_training=training.same, training=training.text)
    text = _speed_text(trial)
    if training.same is False:
        speed = f" ({text})" if text else ""
        return _answered(trial, REFUSE, f"it trains something else: {training.text}{speed}")
    trial = _judge_speed(trial, analysis, text)
    if trial.answer == KEEP and training.same is None and training.differs:
        faster = trial.text.removeprefix(f"{KEEP}: ").partition(";")[0]
        reason = f"it is faster, but may train something else: {training.text} ({faster})"
        trial = _answered(trial, NOT_YET, reason)
    return replace(trial, unclear=training.unclear and trial.answer == NOT_YET)


def _start_s(lane: LaneState) -> float | None:
    account = account_of(lane)
    return sum(account.groups.get(group, 0.0) for group in (START, BEFORE)) if account is not None else None


def _run_s(lane: LaneState) -> float | None:
    account = account_of(lane) if ended(lane) else None
    return account.run_s if account is not None else None


def _run_factor(again: Runs) -> Estimate | None:
    pairs = [(_run_s(first_run), _run_s(other)) for first_run, other in zip(*again, strict=False)]
    center = trimmed([math.log(first_s / other) for first_s, other in pairs if first_s and other], few=True)
    return center.estimate() if center is not None else None


def _mean(values: Iterable[float | None]) -> float | None:
    known_values = [value for value in values if value is not None]
    return statistics.fmean(known_values) if known_values else None


def _peak(lane: LaneState) -> int | None:
    peak = known(lane.tree.peak_private_bytes)
    return None if peak is None else int(peak)


def _failed(trial: Trial, lane: LaneState, *, changed: bool) -> Trial:
    why = lane.trouble.message if lane.trouble is not None else "no reason is known"
    when = f" after {units.several(lane.totals.steps, 'step')}" if lane.totals.steps else ""
    if changed:
        return _answered(trial, REFUSE, f"it fails{when}: {why}")
    return _answered(trial, NO_TRIAL, f"the script fails{when} without the change: {why}")


def _answered(trial: Trial, answer: Answer, reason: str) -> Trial:
    return replace(trial, answer=answer, text=f"{answer}: {reason}")


def _steps_factor(analysis: Analysis) -> Estimate | None:
    if not analysis.verdict.ranking:
        return None
    rank = analysis.verdict.ranking[0]
    if rank.id == analysis.snapshot.lanes[1].spec.id:
        return rank.ratio
    return rank.ratio.inverse


def _speed_text(trial: Trial) -> str:
    factors = (
        _factor_text("its steps are", trial.steps_factor),
        _factor_text("its whole run is", trial.run_factor),
    )
    return " and ".join(filter(None, (*factors, _once_text(trial))))


def _once_text(trial: Trial) -> str:
    took = [units.duration(seconds) for seconds in trial.run_s if seconds is not None]
    single = trial.run_factor is None and len(took) == 2
    return f"its whole run, once, took {took[1]} instead of {took[0]}" if single else ""


def _judge_speed(trial: Trial, analysis: Analysis, text: str) -> Trial:
    margin = analysis.snapshot.race.margin
    steps, run = trial.steps_factor, trial.run_factor
    kinds = _kind(steps, margin), _kind(run, margin)
    if _contradicted(*kinds, trial):
        kinds = "", kinds[1]
    same = f"it trains the same ({trial.training})" if trial.same_training else trial.training
    match kinds:
        case ("faster", "slower") | ("slower", "faster"):
            answer, but = (KEEP, ", so a longer run can lose") if kinds[1] == "faster" else (REFUSE, "")
            return _answered(trial, answer, f"{'faster' if answer == KEEP else 'slower'} in this run: {text}{but}")
        case ("faster", _) | (_, "faster"):
            return _answered(trial, KEEP, f"{text}; {same}")
        case ("slower", _) | (_, "slower"):
            return _answered(trial, REFUSE, f"slower: {text}")
        case (_, "same") | ("same", _) if _gain_left(trial) < NO_GAIN:
            within = f" within ±{100 * margin:g} %" if "same" in kinds else ""
            return _answered(trial, REFUSE, f"it changes nothing: the same speed{within} ({text})")
    left_s, longer = analysis.verdict.left_s, "more of training"
    if run is not None and all(trial.run_s):
        width = math.log(run.high / run.value) / max(abs(math.log(run.value)), 1e-9)
        runs = math.ceil(run.pairs * width**2)
        left_s = runs * sum(filter(None, trial.run_s)) if runs <= MOST_RUNS else None
        longer = f"with --runs {runs}"
    more = f"{f'about {units.about(left_s)} {longer}' if left_s else 'a longer training'} would settle it"
    if _once_text(trial):
        more = "more runs of each side would settle it (--runs)"
    return replace(_answered(trial, NOT_YET, "; ".join(filter(None, (text, more)))), left_s=left_s)


def _contradicted(steps: str, run: str, trial: Trial) -> bool:
    """Return whether whole runs, which do not decide, contradict the speed of the steps."""
    factor = _run_speed(trial)
    faster = factor > 1 + NO_GAIN if steps == "slower" else 1 / factor > 1 + NO_GAIN
    return run in ("", "unclear") and steps in ("slower", "faster") and faster


def _gain_left(trial: Trial) -> float:
    if trial.run_factor is not None:
        return trial.run_factor.high - 1
    return max(_run_speed(trial), 1 / _run_speed(trial)) - 1


def _run_speed(trial: Trial) -> float:
    """Return the speed of whole runs with the change over the speed without, or 1."""
    if trial.run_factor is not None:
        return trial.run_factor.value
    unchanged_s, changed_s = trial.run_s
    return unchanged_s / changed_s if unchanged_s and changed_s else 1.0


def _kind(factor: Estimate | None, margin: float) -> str:
    if factor is None:
        return ""
    if 1 / (1 + margin) <= factor.low and factor.high <= 1 + margin:
        return "same"
    return "faster" if factor.low > 1 else "slower" if factor.high < 1 else "unclear"


def _factor_text(what: str, factor: Estimate | None) -> str:
    if factor is None:
        return ""
    value, interval = units.ratio_in(factor.value, factor.low, factor.high)
    return f"{what} {value} as fast (95 % CI {interval})"
