"""The ids of concerns. Options import this file, so it imports nothing of tfmon."""

from typing import Literal

ConcernId = Literal[
    "child_killed", "stands_still", "loss_lost", "loss_diverges", "validation_rises", "memory_grows", "slower",
    "cores_taken", "lines_skipped", "retraces", "waits", "loss_flat",
]  # fmt: skip
"""The worst first. An id never changes."""
FAIL_ON: dict[str, ConcernId] = {
    "nan": "loss_lost", "diverging": "loss_diverges", "stall": "stands_still", "killed": "child_killed",
    "validation": "validation_rises", "memory": "memory_grows", "slower": "slower", "cores": "cores_taken",
    "retraces": "retraces", "waits": "waits",
}  # fmt: skip
