"""What bounds a lane, from what the time of its steps is made of.

The order of the rules and their thresholds are those by which a lane's windows are judged, so that a capture
can be held against them; what they sample, a capture knows.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfmon.profile.result import BottleneckKind, ProfileVerdict

RETRACED = 0.02
"""More steps than this share trace or compile: nothing else matters then."""
SATURATED = 0.70
"""Where the device computes for so much of the time, waits of the host are hidden behind it."""
INPUT, SYNC, TRANSFER = 0.40, 0.30, 0.25
DISPATCH = 0.35
"""Of the time that the step itself takes, computing or not."""
CLOSE = 0.10
"""Two shares that differ by less are both to blame."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Shares of the time of a step, from 0 to 1.

    All but `sync` do not overlap; on a GPU, those but `compute` are time in which it ran no kernel, by what was
    to blame.
    """

    steps: int
    retraced_steps: int
    eager: bool
    compute: float
    input: float
    dispatch: float
    transfer: float
    """Copies to the GPU and back that nothing hid."""
    other: float
    retracing: float
    """Tracing, and compiling by XLA."""
    sync: float
    """The host waited for the GPU outside of pipeline and step; it overlaps with `compute`."""


def judge(evidence: Evidence) -> ProfileVerdict:
    """Return what bounds the lane."""
    shares = {
        "compute": evidence.compute,
        "input": evidence.input,
        "eager" if evidence.eager else "dispatch": evidence.dispatch,
        "transfer": evidence.transfer,
        "other": evidence.other,
        "retracing": evidence.retracing,
    }
    if evidence.retraced_steps > RETRACED * evidence.steps:
        text = f"{evidence.retraced_steps} of {evidence.steps} steps traced or compiled anew"
        return ProfileVerdict("retracing", text, shares)
    if evidence.compute >= SATURATED:
        return ProfileVerdict("compute", _text("compute", evidence.compute), shares)
    if evidence.sync > SYNC and evidence.input <= INPUT:
        return ProfileVerdict("sync", _text("sync", evidence.sync), shares)
    bound = _bound(evidence)
    rival = max((name for name in shares if name != bound), key=lambda name: shares[name])
    if abs(shares[bound] - shares[rival]) < CLOSE:
        both = sorted((bound, rival), key=lambda name: -shares[name])
        return ProfileVerdict("mixed", "; ".join(_text(name, shares[name]) for name in both), shares)
    return ProfileVerdict(bound, _text(bound, shares[bound]), shares)


def _bound(evidence: Evidence) -> BottleneckKind:
    rest = (evidence.compute, evidence.dispatch, evidence.transfer, evidence.other)
    if evidence.input > INPUT or evidence.input > max(rest):
        return "input"
    if evidence.transfer > TRANSFER:
        return "transfer"
    if evidence.other > max(evidence.compute, evidence.input, evidence.dispatch, evidence.transfer):
        return "other"
    if evidence.dispatch > max(DISPATCH * (evidence.dispatch + evidence.compute), evidence.input):
        return "eager" if evidence.eager else "dispatch"
    return "compute"


_WORDS = {
    "compute": "{:.0%} of the time operations ran",
    "input": "{:.0%} of the time was spent waiting for the next batch",
    "dispatch": "{:.0%} of the time went into calling the step, while nothing was computed",
    "eager": "{:.0%} of the time went into starting operations one by one from Python",
    "transfer": "{:.0%} of the time only copies between host and device ran",
    "sync": "{:.0%} of the time the loop waited for the device outside of the step",
    "other": "{:.0%} of the time the loop was outside of pipeline and step",
    "retracing": "{:.0%} of the time went into tracing or compiling",
}


def _text(bound: str, share: float) -> str:
    return _WORDS[bound].format(share).replace("%", " %")
