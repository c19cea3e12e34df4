"""Samples the main thread's stack, mainly outside of steps, for the account.

The module runs before tfmon is loaded, so it imports only loaded modules. The time before a sample belongs to the
sampled line: the sampler gets the interpreter's lock right after the call that kept it.
"""

import os
import sys
import time
from _thread import LockType, allocate_lock, get_ident, start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

SHORTEST_S, LONGEST_S, SHARE = 0.02, 0.25, 0.005
"""Limits of the interval, and share of the time. A sample takes 0.05 ms."""
IN_STEPS_S = 1.0
"""Interval during steps, in s."""
MOST = 10_000
STARTERS = frozenset(("jax", "keras", "numpy", "tensorflow", "tf_keras", "torch"))
"""Libraries whose first import starts the sampler."""
_STANDARD = os.path.dirname(os.__file__)
_TFMON = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
TFMON, IMPORTS, ADAPT, BATCH, BUILD, LOAD, SAVE = "tfmon", "imports", "adapt", "batch", "build", "load", "save"


class StackSampler:
    """The sampled lines of one thread. Thread: any."""

    def __init__(self) -> None:
        self.began_ns = time.monotonic_ns()
        self.now_ns = time.monotonic_ns
        self.until_ns = self.began_ns
        self._seen: list[tuple[int, int, str, str, int]] = []
        self._steps = allocate_lock()
        self._in_steps = False
        self._thread = 0

    def start(self) -> None:
        """Sample the calling thread."""
        if not self._thread:
            self._thread = get_ident()
            start_new_thread(self._run, (self._steps,))

    def stop(self) -> None:
        """End the thread at its next sample."""
        self._thread = 0
        self.pause(False)

    def pause(self, pause: bool) -> None:
        """Pause during steps, or continue."""
        if pause != self._in_steps:
            self._in_steps = pause
            self._steps.acquire() if pause else self._steps.release()

    def take(self) -> list[tuple[int, int, str, str, int]]:
        """Return start, end, kind, file and line of new samples."""
        seen, self._seen = self._seen, []
        return seen

    def _run(self, steps: LockType) -> None:
        try:
            self.until_ns = self.now_ns()
            while True:
                age_s = (time.monotonic_ns() - self.began_ns) / 1e9
                time.sleep(min(LONGEST_S, max(SHORTEST_S, SHARE * age_s)))
                if self._in_steps and steps.acquire(timeout=IN_STEPS_S):
                    steps.release()
                    self.until_ns = self.now_ns()
                    continue
                # A variable would keep a frame's objects alive.
                if self._thread not in sys._current_frames():
                    return
                now_ns, seen = self.now_ns(), self._seen
                kind, file, line = what_runs(sys._current_frames().get(self._thread))
                if not file:
                    continue
                if seen and seen[-1][1:] == (self.until_ns, kind, file, line):
                    seen[-1] = (seen[-1][0], now_ns, kind, file, line)
                elif len(seen) < MOST:
                    seen.append((self.until_ns, now_ns, kind, file, line))
                self.until_ns = now_ns
        except BaseException:  # noqa: BLE001 - a script must never see an error of this thread
            return


def what_runs(frame: "FrameType | None") -> tuple[str, str, int]:
    """Return the kind of work, and the script's file and line.

    The file is empty if the stack has no frame of the script. The stack can change meanwhile.
    """
    kind, inner, at = "", "", frame
    while at is not None:
        file, name = at.f_code.co_filename, at.f_code.co_name
        if is_users(file) or at.f_globals.get("__name__") == "__main__":
            return kind, file, at.f_lineno
        standard = file.startswith((_STANDARD, "<frozen")) and "-packages" not in file
        if "importlib" in file and name == "_find_and_load":
            kind = IMPORTS
        elif not inner and not standard:
            inner = file
            kind = kind or (TFMON if file.startswith(_TFMON) else "")
        if kind not in (IMPORTS, TFMON) and not standard:
            kind = _kind_of(name, file) or kind
        at = at.f_back
    return kind, "", 0


def is_users(file: str) -> bool:
    """Return whether a file belongs to the script."""
    elsewhere = "-packages" in file or "__autograph_generated_file" in file
    return not (elsewhere or file.startswith((_STANDARD, "<", _TFMON)))


def _kind_of(name: str, file: str) -> str:
    if name == "adapt":
        return ADAPT
    if name.startswith(("save", "export")):
        return SAVE
    if name.startswith(("load", "read_")):
        return LOAD
    if "tensorflow/python/data" in file and name in ("__next__", "get_next"):
        return BATCH
    if name in ("build", "compile") and "keras" in file:
        return BUILD
    return ""


sampler = StackSampler()
