"""Divides the time of this process into parts, see `model.account`.

A *base* is an activity, such as training steps, and a *mark* interrupts it, such as a trace. Windows split the
steps; stacks of the main thread give the lines outside of steps.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from threading import get_ident
from typing import TypeAlias

from tfmon.model.account import (
    AFTER,
    BEFORE,
    CALL,
    FIRST_BATCH,
    FIRST_RUN,
    INPUT,
    INTERPRETER,
    LOSS,
    MOST_PARTS,
    NOT_SPLIT,
    OUTSIDE,
    OWN,
    PROFILED,
    PYTHON,
    START,
    STEPS,
    SUSPENDED,
    TENSORFLOW,
    TimePart,
)
from tfmon.model.lane_events import Accounted, Window
from tfmon.system.lane_clock import lane_clock

Key: TypeAlias = tuple[str, str, str]
"""Group, name and place of a part."""
Sampled: TypeAlias = tuple[int, int, Key]
"""Start and end of a line's time, and the line."""
EVERY_NS, EVERY_SHARE = 2_000_000_000, 0.05
"""Minimum interval of reports, in ns and as a share of the time."""
SMALLER = "smaller parts"
_SPLIT_BY_LINES = (BEFORE, OUTSIDE)
SAMPLED_STEPS, PROFILED_STEPS = "sampled", "profile"


class Account:
    """The account of this process. Units: ns of `lane_clock`.

    Thread: the training thread, at first the main thread.
    """

    def __init__(self) -> None:
        self.begin(lane_clock.now_ns(), lane_clock.now_ns())

    def begin(self, started_ns: int, running_ns: int) -> None:
        """Start an account at `started_ns`. The script has run since `running_ns`."""
        self.thread = get_ident()
        self.sampled: Callable[[], Iterable[Sampled]] = tuple
        """Returns new lines, in order."""
        self.pause_samples: Callable[[bool], object] = lambda _pause: None
        self.trained = False
        """Whether the first step is done."""
        self._times: Counter[Key] = Counter()
        self._outside: Counter[Key] = Counter()
        self._in_call_ns = self._freed_ns = 0
        """Times of marks that the next window counts in call and input."""
        self._in_python: Counter[Key] = Counter()
        self._began_ns, self._suspended_ns = started_ns, lane_clock.stopped_ns
        self._base: Key = (BEFORE, NOT_SPLIT, "")
        self._marks: list[Key] = []
        self._trail: list[tuple[int, Key, bool]] = [
            (started_ns, (START, INTERPRETER, ""), False),
            (max(started_ns, running_ns), self._base, True),
        ]
        """Segments since the last `_fold`: start, part, whether it is the base."""
        self._next_ns = 0

    def begin_process(self, running_ns: int) -> None:
        """Start an account from the start of this process."""
        self.begin(min(_process_started_ns() or running_ns, running_ns), running_ns)

    @property
    def measures_caller(self) -> bool:
        """Whether the calling thread is the account's."""
        return get_ident() == self.thread

    @property
    def in_steps(self) -> bool:
        """Whether the process trains steps."""
        return self._base[0] == STEPS or self._base[1] == FIRST_RUN

    def switch(self, group: str, name: str = NOT_SPLIT, line: str = "", at_ns: int = 0) -> None:
        """Change the base since `at_ns`. Marks stay."""
        base, at_ns, trail = (group, name, line), at_ns or lane_clock.now_ns(), []
        ends = [start for start, _, _ in self._trail[1:]]
        for (start, key, of_base), end in zip(self._trail, [*ends, at_ns + 1], strict=True):
            if not of_base or end <= at_ns:
                trail.append((start, key, of_base))
            else:
                trail += [(start, key, True)] if start < at_ns else []
                trail.append((max(start, at_ns), base, True))
        self._trail, self._base = trail, base

    def steps_begin(self, at_ns: int = 0) -> None:
        """Record that steps begin."""
        self.pause_samples(True)
        if self.trained:
            self._fold()
            self._times += self._outside
            self._outside.clear()
        self.switch(*((STEPS, NOT_SPLIT) if self.trained else (BEFORE, FIRST_RUN)), at_ns=at_ns)

    def steps_end(self, group: str, name: str = NOT_SPLIT, at_ns: int = 0) -> None:
        """Record that steps ended, and the part that follows."""
        self.switch(group, name, at_ns=at_ns)
        self.pause_samples(False)

    @contextlib.contextmanager
    def mark(self, name: str, line: str = "") -> Iterator[None]:
        """Return a scope whose time belongs to this part."""
        if not self.measures_caller:
            yield
            return
        key = self._base[0], name, line
        self._marks.append(key)
        self._trail.append((lane_clock.now_ns(), key, False))
        try:
            yield
        finally:
            self._marks.pop()
            outer = self._marks[-1] if self._marks else self._base
            self._trail.append((lane_clock.now_ns(), outer, not self._marks))

    def freed(self, line: str, took_ns: int) -> None:
        """Record a wait for freeing an iterator."""
        if not self.measures_caller or self._marks:
            return
        base, now_ns = self._base, lane_clock.now_ns()
        if self.in_steps:
            self._freed_ns += took_ns
        self.switch(TENSORFLOW, "freeing an iterator", line, at_ns=now_ns - took_ns)
        self.switch(*base, at_ns=now_ns)

    def batch_callback(self, name: str, line: str, took_ns: int) -> None:
        """Record a callback between two steps."""
        self._in_python[STEPS, f"callback {name}", line] += took_ns

    def split(self, window: Window) -> None:
        """Split the steps of a window that ends now."""
        self._fold()
        first = not self.trained
        group = BEFORE if first else STEPS
        rest: Key = (BEFORE, FIRST_RUN, "") if first else (STEPS, NOT_SPLIT, "")
        in_call_ns, freed_ns = self._in_call_ns, self._freed_ns
        self._in_call_ns = self._freed_ns = 0
        named_ns = window.input_ns + window.call_ns + window.sync_ns + window.report_ns
        sampled_ns = window.left_out_ns.get(SAMPLED_STEPS, 0)
        sampled_named_ns = window.sampled_input_ns + window.sampled_call_ns + window.sampled_tail_ns
        call_ns = window.call_ns - in_call_ns + window.sampled_call_ns + window.sampled_tail_ns
        python_ns = max(0, window.span_ns - named_ns) + max(0, sampled_ns - sampled_named_ns)
        input_ns = window.input_ns + window.sampled_input_ns - freed_ns
        self._move(rest, (group, FIRST_BATCH if first else INPUT, ""), input_ns)
        self._move(rest, (OWN, "measuring", ""), window.report_ns)
        self._move(rest, (OWN, PROFILED, ""), window.left_out_ns.get(PROFILED_STEPS, 0))
        if first:
            self.trained = True
            if self.in_steps:
                self.switch(STEPS)
            return
        self._move(rest, (group, CALL, ""), call_ns)
        self._move(rest, (group, LOSS, ""), window.sync_ns)
        for key, time_ns in self._in_python.items():
            self._move(rest, key, time_ns)
        self._move(rest, (group, PYTHON, ""), python_ns - self._in_python.total())
        self._in_python.clear()

    def _move(self, source: Key, target: Key, time_ns: int) -> None:
        moved_ns = max(0, min(time_ns, self._times[source]))
        self._times[source] -= moved_ns
        self._times[target] += moved_ns

    def _fold(self) -> None:
        now_ns, sampled = lane_clock.now_ns(), list(self.sampled())
        ends = [start for start, _, _ in self._trail[1:]]
        for (start, key, of_base), end in zip(self._trail, [*ends, now_ns], strict=True):
            if end <= start:
                continue
            times = self._outside if key[0] == OUTSIDE else self._times
            if of_base and key[0] in _SPLIT_BY_LINES and key[1] == NOT_SPLIT:
                end_ns = end
                for since, until, seen in sampled:
                    part_ns = min(until, end_ns) - max(since, start)
                    if part_ns > 0:
                        (self._times if seen[0] else times)[seen[0] or key[0], seen[1], seen[2]] += part_ns
                        times[key] -= part_ns
            elif not of_base and key[0] == STEPS:
                self._in_call_ns += end - start
            times[key] += end - start
        key, of_base = (self._marks[-1], False) if self._marks else (self._base, True)
        self._trail = [(now_ns, key, of_base)]

    def report(self, *, last: bool = False, most: int = MOST_PARTS) -> Accounted:
        """Return the account, with at most `most` parts."""
        self._fold()
        at_ns = time.monotonic_ns()
        times = self._times.copy()
        for (group, name, line), time_ns in self._outside.items():
            times[AFTER if group == OUTSIDE else group, name, line] += time_ns
        times[SUSPENDED, NOT_SPLIT, ""] += lane_clock.stopped_ns - self._suspended_ns
        parts = [TimePart(*key, time_ns) for key, time_ns in times.most_common() if time_ns > 0]
        smaller: Counter[str] = Counter()
        for part in parts[most:]:
            smaller[part.group] += part.time_ns
        parts[most:] = [TimePart(group, SMALLER, "", time_ns) for group, time_ns in smaller.items()]
        return Accounted(at_ns=at_ns, parts=tuple(parts), trained=self.trained, last=last)

    def due(self) -> bool:
        """Return whether the account is due, and restart the interval."""
        now_ns = lane_clock.now_ns()
        if now_ns < self._next_ns:
            return False
        self._next_ns = now_ns + max(EVERY_NS, round(EVERY_SHARE * (now_ns - self._began_ns)))
        return True


def _process_started_ns() -> int | None:
    """Source: `starttime` of proc(5), which includes suspend time."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        started_ns = int(fields[19]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        age_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - started_ns
    except (OSError, AttributeError, IndexError, ValueError):
        return None
    return time.monotonic_ns() - age_ns if age_ns >= 0 else None


account = Account()
