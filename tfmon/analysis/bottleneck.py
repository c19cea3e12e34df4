"""Why a lane is as slow as it is, in a sentence with the number behind it. Pure.

Rules are tried in an order in which an earlier one explains away a later one: a traced step waits for nothing
else, and where the device works all the time the host's waits are hidden behind it. The thresholds for input
are those of TensorFlow's profiler for "highly bound"; below them it calls a step moderately bound (input 5 %).

Source: the order and the other thresholds were found on lanes whose bound was known, and are checked against
deep profiles by `tests/benchmarks/attribution.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tfmon.analysis.advice import Advice, advice_for
from tfmon.analysis.attribution import SATURATED, Shares, shares_of
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import Missing, known
from tfmon.model.session import Snapshot

LEAST_WINDOWS = 3
RETRACED_STEPS = 0.02
INPUT_PCT, SYNC_PCT, COPY_PCT, OTHER_PCT = 40.0, 30.0, 25.0, 40.0
DISPATCH_OF_STEP = 0.35
MIXED_POINTS = 10.0
BUSY_OTHERS_PCT = 50.0
"""Half a core kept busy by other programs is worth a word."""


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """What bounds a lane."""

    kind: str
    """`retracing`, `compute`, `input`, `sync`, `transfer`, `eager`, `dispatch`, `other` or `mixed`; `step` where
    dispatch and compute are not told apart."""
    text: str
    """One sentence with the number behind it."""
    shares: Shares
    advice: tuple[Advice, ...]
    """What may help, the likeliest first."""
    also: tuple[str, ...] = ()
    """What else slows the lane down or disturbs the figures."""


@dataclass(frozen=True, slots=True)
class _Case:
    lane: LaneState
    shares: Shares


def find_bottleneck(snapshot: Snapshot, lane: LaneState) -> Bottleneck | None:
    """Return what bounds a lane under the settings in force; None before enough is measured."""
    shares = shares_of(lane)
    if shares is None or lane.steady.windows < LEAST_WINDOWS:
        return None
    case = _Case(lane, shares)
    kind, text = next(found for found in (rule(case) for rule in _RULES) if found is not None)
    rival = _rival(kind, shares)
    bounds = [kind]
    if rival is not None:
        bounds = [kind, rival[0]]
        kind, text = "mixed", f"mixed: {text}, and {rival[1]}"
    advice = tuple(one for bound in bounds for one in advice_for(bound, lane, snapshot.race.knobs))
    return Bottleneck(kind, text, shares, advice, _also(snapshot, lane))


# ---------------------------------------------------------------- the rules, in order

_Found = tuple[str, str] | None


def _retracing(case: _Case) -> _Found:
    steady = case.lane.steady
    if steady.traced_steps <= RETRACED_STEPS * steady.steps:
        return None
    share = 100 * steady.traced_steps / steady.steps
    cause = f" ({case.lane.traced})" if case.lane.traced else ""
    often = "every step" if share > 95 else f"{share:.0f} % of the steps"
    took = f"{case.shares.retrace_pct:.0f} % of the time"
    return "retracing", f"retracing: {often}, {took}{cause}"


def _saturated(case: _Case) -> _Found:
    device = known(case.shares.device_pct)
    if not case.shares.asynchronous or device is None or device < 100 * SATURATED:
        return None
    return "compute", f"compute-bound: the device works {device:.0f} % of the time"


def _input(case: _Case) -> _Found:
    shares = case.shares
    share = shares.input_pct
    rest = (shares.copy_pct, shares.dispatch_pct, shares.device_pct, shares.sync_pct, shares.other_pct)
    if share <= INPUT_PCT and share <= max(known(one) or 0.0 for one in (shares.step_pct / 2, *rest)):
        return None
    return "input", f"input-bound: {share:.0f} % of the time waits for batches"


def _sync(case: _Case) -> _Found:
    share = case.shares.reading_pct
    if share <= SYNC_PCT or not case.shares.asynchronous or not case.lane.settings.get("sync_every_step", False):
        return None
    return "sync", f"sync stall: {share:.0f} % of the time waits to read each loss"


def _transfer(case: _Case) -> _Found:
    share = known(case.shares.copy_pct)
    if share is None or share <= COPY_PCT:
        return None
    return "transfer", f"transfer-bound: copies to the device take up to {share:.0f} %"


def _other(case: _Case) -> _Found:
    share = case.shares.other_pct
    if share <= OTHER_PCT:
        return None
    return "other", f"Python between the steps: {share:.0f} % of the time goes there"


def _dispatch(case: _Case) -> _Found:
    """Name dispatch where it is a good part of the step; eagerly that is one start for every operation."""
    dispatch = known(case.shares.dispatch_pct)
    if dispatch is None:
        return None
    keeps_up = case.shares.asynchronous and isinstance(case.shares.device_pct, Missing)
    if not keeps_up and dispatch <= max(DISPATCH_OF_STEP * case.shares.step_pct, case.shares.input_pct):
        return None
    if not case.lane.settings.get("graph", True):
        return "eager", f"eager: starting operations one by one takes {dispatch:.0f} % of the time"
    if keeps_up:
        return "dispatch", f"dispatch-bound: launches take {dispatch:.0f} % of the time"
    return "dispatch", f"dispatch-bound: starting the step takes {dispatch:.0f} % of the time"


def _step(case: _Case) -> _Found:
    shares = case.shares
    if known(shares.device_pct) is not None or known(shares.dispatch_pct) is not None:
        return None
    return "step", f"the step takes {shares.step_pct:.0f} % of the time, it is not known for what"


def _compute(case: _Case) -> _Found:
    return "compute", f"compute-bound: {known(case.shares.device_pct) or 0.0:.0f} % of the time computes"


_RULES: tuple[Callable[[_Case], _Found], ...] = (
    _retracing, _saturated, _input, _sync, _transfer, _other, _dispatch, _step, _compute,
)  # fmt: skip


def _rival(kind: str, shares: Shares) -> tuple[str, str] | None:
    """Return another bound that is as large within ten points, and its words; some explain all others away."""
    own = "dispatch" if kind == "eager" else kind
    sizes = {
        "input": (shares.input_pct, "{:.0f} % waits for the next batch"),
        "transfer": (known(shares.copy_pct) or 0.0, "copying to the device takes {:.0f} %"),
        "dispatch": (known(shares.dispatch_pct) or 0.0, "{:.0f} % starts the step"),
        "compute": (known(shares.device_pct) or 0.0, "{:.0f} % computes"),
        "sync": (shares.sync_pct, "reading the loss takes {:.0f} %"),
    }
    if kind == "sync":
        # The device computes while the loop waits to read: they are the same time.
        sizes |= {"sync": (shares.reading_pct, ""), "compute": (0.0, "")}
    if own not in sizes:
        return None
    name = max((other for other in sizes if other != own), key=lambda other: sizes[other][0])
    size, words = sizes[name]
    return (name, words.format(size)) if abs(sizes[own][0] - size) < MIXED_POINTS else None


# ---------------------------------------------------------------- what else there is


def _also(snapshot: Snapshot, lane: LaneState) -> tuple[str, ...]:
    """Name what the machine adds to it: each line is one reading that is out of the ordinary."""
    return tuple(line for line in (*_of_the_host(snapshot, lane), *_of_the_gpu(snapshot, lane)) if line)


def _of_the_host(snapshot: Snapshot, lane: LaneState) -> list[str]:
    host, lines = snapshot.host, []
    if host is None:
        return []
    if (swapped := known(host.swap_in_bytes_per_s)) is not None and swapped > 1e6:
        lines.append(f"the machine swaps ({swapped / 2**20:.0f} MiB/s read back): it is short of memory")
    if (throttled := known(host.throttled_pct)) is not None and throttled > 5:
        lines.append(f"the container's CPU quota is used up in {throttled:.0f} % of its periods")
    if (others := known(host.others_cpu_pct)) is not None and others > BUSY_OTHERS_PCT:
        lines.append(f"other programs keep {others / 100:.1f} cores busy")
    if (stolen := known(host.steal_pct)) is not None and stolen > 5:
        lines.append(f"the hypervisor gives {stolen:.0f} % of a core to other machines")
    threads = lane.settings.get("threads")
    if isinstance(threads, int) and lane.spec.kind == "cpu" and threads < snapshot.machine.usable_cores:
        lines.append(f"threads={threads} leaves cores idle: {snapshot.machine.usable_cores:g} may be used")
    return lines


def _of_the_gpu(snapshot: Snapshot, lane: LaneState) -> list[str]:
    gpu = snapshot.gpu_of(lane)
    if gpu is None:
        return []
    reasons = () if isinstance(gpu.clock_reasons, Missing) else gpu.clock_reasons
    lines = [f"the GPU runs below full clocks: {one.text}" for one in reasons if one.level != "info"]
    if gpu.pcie_warning:
        lines.append(f"the GPU's link is narrow: {gpu.pcie_warning}")
    strangers = [pid for pid in gpu.used_by_pid if pid not in {p for one in snapshot.lanes for p in one.pids}]
    if strangers and not gpu.foreign_pids:
        lines.append(f"{len(strangers)} other programs hold memory of this GPU")
    return lines
