"""Compares the shares of step time, and the bottleneck, with the profiler; `overhead.py` measures their cost.

    python benchmarks/attribution.py [--seconds 6] [--captures 5] [--only small-dense]

It trains lanes whose bound is known, takes the shares of step time from their windows and the means of some
profiles of 20 steps between these, and compares them share by share. The input, the call and the rest come from
the lane's clocks on one side and from TensorFlow's on the other. How a call splits is a profile's word on both
sides: of a few steps while the lane warmed up, and of others later.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from common import Watch, options_of, plan_one_lane, racing

from tfmon.analysis.bottleneck import find_bottleneck
from tfmon.analysis.shares import shares_of
from tfmon.lanes.group import LaneGroup
from tfmon.model.lane_events import Profiled, ProfileFailed
from tfmon.model.lane_state import LaneState
from tfmon.model.profile import Profile
from tfmon.model.readings import Missing, known
from tfmon.model.requests import TakeProfile
from tfmon.profile.breakdown import read_profile

POINTS = 5.0
STEPS = 20
PATIENCE_S = 90.0


@dataclass(frozen=True, slots=True)
class Known:
    """A lane and what bounds it, which one knows from how it was made."""

    scenario: str
    lane: str
    kinds: tuple[str, ...]
    why: str


LANES = (
    Known("small-dense", "cpu", ("dispatch",), "a batch of 10 through 14,000 weights"),
    Known("small-dense", "cpu,sync_every_step=on", ("dispatch",), "the same: a CPU's loss is there when read"),
    Known("tensor-core-shapes", "cpu", ("compute",), "large matrix products"),
    Known("slow-preprocess", "cpu", ("input",), "1 ms of a core for each image, in a serial map"),
    Known("host-transfer", "cpu", ("input", "mixed"), "8 MiB gathered for each step, and hardly anything done"),
    Known("eager-graph", "cpu,graph=off", ("eager",), "every operation of a small net on its own"),
    Known("eager-graph", "cpu", ("compute",), "the same net as one graph: convolutions"),
    Known("fine-grained-ops", "cpu,graph=on", ("dispatch",), "a hundred additions of 100 numbers"),
    Known("fine-grained-ops", "cpu,graph=off", ("eager",), "the same, one by one"),
    Known("retracing", "cpu", ("retracing",), "a Python number as an argument"),
    Known("python-feed", "cpu", ("dispatch", "mixed"), "Keras' train_on_batch on arrays, half of it computing"),
)


def compare(one: Known, seconds: float, captures: int) -> tuple[float, bool]:
    """Train a lane, print both shares; return the largest difference and if the verdict is right."""
    plan = plan_one_lane(one.scenario, one.lane)
    (planned,) = plan.lanes
    with racing(plan) as (lanes, watch), tempfile.TemporaryDirectory() as folder:
        lanes.resume([planned.spec.name])
        profiles = []
        for number in range(captures):
            _train(watch, seconds / captures)
            path = _profile(lanes, watch, planned.spec.name, Path(folder) / str(number))
            profiles.append(read_profile(path))
        _train(watch, seconds / captures)
        snapshot = watch.snapshot()
    (lane,) = snapshot.lanes
    profile = sorted(profiles, key=lambda one: one.step_ns)[captures // 2]
    each = [by_profile(one) for one in profiles]
    ours, theirs = by_windows(lane), {name: statistics.fmean(one[name] for one in each) for name in each[0]}
    apart = {name: abs(ours[name] - theirs[name]) for name in ours if name in theirs}
    found = find_bottleneck(snapshot, lane)
    kind = found.kind if found else "none"
    right = kind in one.kinds
    bound = profile.bottleneck.kind if not isinstance(profile.bottleneck, Missing) else "none"
    print(f"\n{one.scenario} on {one.lane}: {one.why}")
    print(f"  {'by windows':12}" + "".join(f"{name} {value:5.1f}   " for name, value in ours.items()))
    print(f"  {'by profile':12}" + "".join(f"{name} {value:5.1f}   " for name, value in theirs.items()))
    worst = max(apart, key=lambda name: apart[name])
    print(
        f"  at most {apart[worst]:.1f} points apart ({worst}); {kind}, by the profile {bound},"
        f" expected {' or '.join(one.kinds)}: {'right' if right else 'WRONG'}"
    )
    print(
        f"  {found.text if found else ''}; try {', '.join(each.remedy for each in found.causes) if found else ''}"
    )
    return apart[worst], right


def by_windows(lane: LaneState) -> dict[str, float]:
    """Return the shares of step time from the lane's windows, in percent."""
    shares = shares_of(lane)
    assert shares is not None
    named = {"input": shares.input_pct, "retrace": shares.retrace_pct, "rest": shares.sync_pct + shares.other_pct}
    split = {"dispatch": known(shares.dispatch_pct), "compute": known(shares.device_pct)}
    found = {name: value for name, value in split.items() if value is not None}
    return {**named, **(found or {"step": shares.step_pct})}


def by_profile(profile: Profile) -> dict[str, float]:
    """Return the same shares from a profile."""
    call = profile.call
    assert not isinstance(call, Missing)
    compute = known(call.compute_ns) or 0.0
    parts = {
        "input": known(profile.input.wait_ns) or 0.0,
        "retrace": call.tracing_ns + call.compile_ns,
        "rest": profile.other_ns,
        "dispatch": call.dispatch_ns,
        "compute": compute,
        "step": call.dispatch_ns + compute,
    }
    return {name: 100 * value / profile.step_ns for name, value in parts.items()}


def run_shares(options: argparse.Namespace) -> None:
    """Compare every lane, and say whether the goals are met."""
    lanes = [lane for lane in LANES if options.only in (None, lane.scenario)]
    results = [compare(lane, options.seconds, options.captures) for lane in lanes]
    near = sum(apart <= POINTS for apart, _ in results)
    right = sum(right for _, right in results)
    print(f"\nwithin {POINTS:g} points: {near} of {len(lanes)} lanes; verdicts right: {right} of {len(lanes)}")


def _train(watch: Watch, seconds: float) -> None:
    """Train the lane for a time, and at least until its bottleneck is known."""
    deadline = time.monotonic() + PATIENCE_S
    until = time.monotonic() + seconds
    while time.monotonic() < until or find_bottleneck(watch.snapshot(), watch.snapshot().lanes[0]) is None:
        if time.monotonic() > deadline:
            raise SystemExit("the lane trained for long and was not diagnosed")
        time.sleep(0.1)


def _profile(lanes: LaneGroup, watch: Watch, lane: str, folder: Path) -> Path:
    """Take a profile of the lane; return the file."""
    start = watch.heard
    lanes.profile(lane, TakeProfile(folder=str(folder), steps=STEPS))
    answer = watch.wait(lambda event: isinstance(event, Profiled | ProfileFailed), start, PATIENCE_S)
    if isinstance(answer, Profiled):
        return Path(answer.path)
    raise SystemExit(f"no profile: {answer}")


if __name__ == "__main__":
    run_shares(options_of(__doc__, seconds=6.0, captures=5, only=None))
