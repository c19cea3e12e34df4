"""The kept recordings, and the commands whose output on each of them is pinned."""

import os
from pathlib import Path

KEPT = Path(__file__).with_name("kept")
"""Recordings of real runs, written by `record.py`."""
EXPECTED = Path(__file__).with_name("expected")
"""The pinned output of the commands and the pinned rows of the screen."""
UPDATE = "TFMON_UPDATE" in os.environ
"""Whether the tests write the pinned output instead of comparing with it."""

RACES = ("race", "repeat", "three", "failed", "remote", "watch", "tune", "crossover")
"""Recordings of races; `repeat` is the race of `race` a second time, with another prefetch."""
SWEEP = "sweep"


def recording(name: str) -> Path:
    """Return the path of a kept recording."""
    return KEPT / f"{name}{'.sweep' if name == SWEEP else '.jsonl.gz'}"


COMMANDS: dict[str, tuple[str, ...]] = {
    **{f"{name}-{kind}": ("replay", name, f"--{kind}") for name in RACES for kind in ("headless", "json")},
    **{f"{name}-{kind}": ("export", name, f"--{kind}") for name in RACES for kind in ("text", "markdown")},
    **{f"{SWEEP}-{kind}": ("export", SWEEP, f"--{kind}") for kind in ("text", "markdown")},
    "sweep-json": ("export", SWEEP, "--json"),
    "diff": ("diff", "race", "repeat"),
    "diff-json": ("diff", "race", "repeat", "--json"),
    "diff-gate": ("diff", "race", "repeat", "--slower-than", "5%"),
    "diff-gate-reversed": ("diff", "repeat", "race", "--slower-than", "5%"),
    "diff-gate-memory": ("diff", "race", "repeat", "--more-memory-than", "5%", "--json"),
    "diff-other-lanes": ("diff", "race", "three"),
    "diff-failed": ("diff", "race", "failed", "--slower-than", "5%"),
    "replay-a-sweep": ("replay", SWEEP, "--headless"),
    "replay-no-file": ("replay", "nothing.jsonl", "--json"),
}  # fmt: skip
"""Each pinned output, and the words of its command; the names of kept recordings stand for their paths."""
