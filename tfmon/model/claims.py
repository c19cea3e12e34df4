"""Claims: what people say about a scenario, written so that a race can support or contradict it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement and the comparison of two lanes that it predicts."""

    id: str
    source: str
    """The article and the example it comes from."""
    says: str
    """The statement, in our words."""
    first: str = ""
    """Spec of the lane that is said to be faster, such as `cpu,graph=on`."""
    second: str = ""
    """Spec of the lane that it is compared with."""
    at_least: float = 1.0
    """By how much it is said to be faster."""
    at_most: float | None = None
    """By how much at most, for a claim that there is little or nothing between them."""
    needs: Literal["", "gpu", "mac"] = ""
    """What the machine must have."""
    corrected: str = ""
    """For a statement that is technically wrong: what is true, and how it shows."""
