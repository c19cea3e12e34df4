"""The account of a whole run. Its shares are of the run's wall time without suspensions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from tfmon.model.account import AFTER, CALL, GROUPS, INTERPRETER, NOT_SPLIT, START, STEPS, SUSPENDED, UNKNOWN
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.lane_state import LaneState

LEAST_SHARE = 0.01
UNSCOPED = "metrics and operations without a scope"
OPTIMIZERS = (
    "adam", "adamw", "adamax", "adagrad", "adadelta", "adafactor", "nadam", "rmsprop", "sgd", "ftrl", "lion",
    "lamb", "muon", "loss_scale_optimizer",
)  # fmt: skip
AUGMENTS = re.compile(r"random_|(rand|aug|cut)_?(mix|out|ment)|mix_up|auto_contrast|equalization|solarization")
LAUNCHER, LAUNCH_NS = "what the command did before this process", 50_000_000
"""A process that starts later was started by another program."""


@dataclass(frozen=True, slots=True)
class AccountRow:
    """A part of a run's time."""

    group: str
    part: str
    place: str
    """Such as "train.py:17 `model.fit(x, y)`"."""
    seconds: float
    share: float
    source: str = ""


@dataclass(frozen=True, slots=True)
class Account:
    """Where the time of a run went."""

    wall_s: float
    """From the start to the exit or last report."""
    over: bool
    rows: tuple[AccountRow, ...]
    """In the order of a run, then by length."""

    @property
    def run_s(self) -> float:
        """The denominator of shares: wall time without suspensions."""
        return self.wall_s - self.groups.get(SUSPENDED, 0.0)

    @property
    def groups(self) -> dict[str, float]:
        """Seconds by group."""
        sums: dict[str, float] = {}
        for row in self.rows:
            sums[row.group] = sums.get(row.group, 0.0) + row.seconds
        return sums

    def parts_of(self, group: str) -> Iterator[AccountRow]:
        """Yield the parts of a group that are shown."""
        rows = [row for row in self.rows if row.group == group]
        for row in rows:
            specific = row.place or row.part != NOT_SPLIT or len(rows) > 1
            if specific and row.share >= LEAST_SHARE:
                yield row


def account_of(lane: LaneState) -> Account | None:
    """Return the account of a lane. `None` before a report."""
    reported, end = lane.account, lane.end.event
    if reported is None or not reported.parts:
        return None
    times: Counter[tuple[str, str, str]] = Counter()
    for part in reported.parts:
        times[part.group if part.group in GROUPS else UNKNOWN, part.name, part.place] += part.time_ns
    began_ns = reported.at_ns - times.total()
    started_ns = min(lane.process.started_ns, began_ns)
    launched = began_ns - started_ns > LAUNCH_NS
    times[START, LAUNCHER if launched else INTERPRETER, ""] += began_ns - started_ns
    if end is not None:
        left = (AFTER, "exit", "") if reported.last else (UNKNOWN, NOT_SPLIT, "")
        times[left] += max(0, end.at_ns - reported.at_ns)
    wall_ns = times.total()
    run_ns = wall_ns - sum(time_ns for (group, _, _), time_ns in times.items() if group == SUSPENDED)
    source, profiled = _by_profile(lane, times.pop((STEPS, CALL, ""), 0))
    times.update(profiled)
    rows = [
        AccountRow(*key, time_ns / 1e9, time_ns / max(1, run_ns), source if key in profiled else "")
        for key, time_ns in sorted(times.most_common(), key=lambda item: GROUPS.index(item[0][0]))
        if time_ns > 0
    ]
    return Account(wall_ns / 1e9, end is not None, tuple(rows))


def _by_profile(lane: LaneState, call_ns: int) -> tuple[str, Counter[tuple[str, str, str]]]:
    profile = next((profile for profile in reversed(lane.step.profiles) if profile.parts), None)
    sums: Counter[str] = Counter()
    for part in profile.parts if profile is not None else ():
        if part.runs or part.name.startswith("dispatch"):
            sums[kind_of_operation(part.name) if part.runs else "dispatch"] += round(part.step_ns)
    if profile is None or not sums.total():
        return "", Counter({(STEPS, CALL, ""): call_ns})
    times = {(STEPS, name, ""): call_ns * time_ns // sums.total() for name, time_ns in sums.items()}
    times[STEPS, CALL, ""] = call_ns - sum(times.values())  # the rounding
    return f"by a profile of {profile.steps} steps", Counter(times)


def kind_of_operation(name: str) -> str:
    """Return an operation's part of a step, by Keras 3's scopes."""
    *scopes, _ = re.sub(r"_\d+(?=/)", "", name).split("/")
    if not scopes:
        return UNSCOPED
    if "gradient_tape" in scopes:
        return "backward"
    if "compile_loss" in scopes:
        return "loss"
    if not set(OPTIMIZERS).isdisjoint(scopes):
        return "optimizer"
    return "augmentation layers" if any(map(AUGMENTS.match, scopes)) else "forward"


def account_lines(account: Account) -> Iterator[tuple[str, str, str, str]]:
    """Yield table rows: part, time, share of the first row, line."""
    groups, run_s = account.groups, account.run_s
    suspended_s = groups.pop(SUSPENDED, 0.0)
    yield "the run" if not suspended_s else "the run, not suspended", *_amount(run_s, 1.0), ""
    for group, seconds in groups.items():
        if seconds >= LEAST_SHARE * run_s:
            yield group, *_amount(seconds, seconds / run_s), ""
            for row in account.parts_of(group):
                yield f"· {row.part}", *_amount(row.seconds, row.share), row.place or row.source
    rest_s = sum(seconds for seconds in groups.values() if seconds < LEAST_SHARE * run_s)
    if rest_s > 0:
        yield "everything else", *_amount(rest_s, rest_s / run_s), ""
    if suspended_s > 0:
        yield SUSPENDED, *_amount(suspended_s, None), ""


def _amount(seconds: float, share: float | None) -> tuple[str, str]:
    return f"{seconds:.1f} s", "" if share is None else f"{100 * share:.0f} %"
