"""Samples the main thread for the time account of this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from tfmon.hooks import stacks
from tfmon.hooks.inspection import line_at, line_of, users_frame
from tfmon.hooks.stacks import StackSampler
from tfmon.model import account as groups
from tfmon.system.lane_clock import lane_clock
from tfmon.trainer.time_parts import Sampled, account

_PARTS = {
    stacks.IMPORTS: (groups.START, groups.IMPORTS),
    stacks.TFMON: (groups.OWN, "loading tfmon's hooks"),
    stacks.SAVE: (groups.SAVING, "saving"),
    stacks.ADAPT: ("", "adapting layers"),
    stacks.BATCH: ("", groups.FIRST_BATCH),
    stacks.BUILD: ("", "building the model"),
    stacks.LOAD: ("", "loading"),
}
SAVERS = ("ModelCheckpoint", "BackupAndRestore", "SwapEMAWeights")
MOST_TEXT = 100
LATE_NS = 1_000_000_000
"""An older sample does not represent the time since then."""


_begun_in = 0


def begin_process() -> None:
    """Start the account of this process, once."""
    global _begun_in  # noqa: PLW0603 - state of the process
    if _begun_in == os.getpid():
        return
    _begun_in = os.getpid()
    finders = [finder for finder in sys.meta_path if type(finder).__module__ == "sitecustomize"]
    loaded = next((stacks for stacks in (getattr(finder, "stacks", None) for finder in finders) if stacks), None)
    sampler: StackSampler = StackSampler() if loaded is None else loaded.sampler
    account.begin_process(sampler.began_ns)
    _follow(sampler)


def begin_block() -> StackSampler:
    """Start the account of a watched block, and return the sampler."""
    global _begun_in
    _begun_in, sampler = os.getpid(), StackSampler()
    account.begin(lane_clock.now_ns(), lane_clock.now_ns())
    sampler.start()
    _follow(sampler)
    return sampler


def _follow(sampler: StackSampler) -> None:
    sampler.now_ns = lane_clock.now_ns
    account.sampled, account.pause_samples = lambda: _sampled(sampler), sampler.pause


def _sampled(sampler: StackSampler) -> Iterator[Sampled]:
    for since_ns, until_ns, kind, file, line in sampler.take():
        group, name = _PARTS.get(kind, ("", groups.LINE))
        yield since_ns, until_ns, (group, name, line_at(file, line)[:MOST_TEXT])
    frame, now_ns = users_frame(), lane_clock.now_ns()
    if stacks.is_users(frame.f_code.co_filename) and now_ns - sampler.until_ns < LATE_NS:
        yield sampler.until_ns, now_ns, ("", groups.LINE, line_of(frame)[:MOST_TEXT])


def part_of(reason: str) -> tuple[str, str]:
    """Return group and name of the time outside steps."""
    callback = reason.removeprefix("callback ")
    if callback != reason:
        return (groups.SAVING if callback in SAVERS else groups.CALLBACKS), callback
    if reason in ("evaluate", "predict"):
        return groups.VALIDATION, reason
    return (reason if reason in (groups.BETWEEN, groups.VALIDATION) else groups.OUTSIDE), groups.NOT_SPLIT
