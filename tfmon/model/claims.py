"""Claims: what people say about a scenario, and what a measured ratio says about a claim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tfmon.model.readings import Estimate

Outcome = Literal["supported", "contradicted", "too close to call", "not testable here", "corrected"]


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement and the comparison of two lanes that it predicts."""

    id: str
    source: str = ""
    """The article and the example it comes from; empty for those of its scenario."""
    says: str = ""
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
    seconds: float | None = None
    """How long its race takes, where steps take seconds: such a claim is measured where its scenario is named."""
    corrected: str = ""
    """For a statement that is technically wrong: what is true, and how it shows."""


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """A claim and what came of it."""

    scenario: str
    claim: Claim
    outcome: Outcome
    ratio: Estimate | None = None
    """Throughput of the claim's first lane over its second's."""
    reason: str = ""
    """Why it could not be tested; what is true instead of a corrected one."""


def judge(claim: Claim, ratio: Estimate) -> Outcome:
    """Return the outcome of a claim; only an interval that lies all on one side decides."""
    if claim.at_most is not None:
        if 1 / claim.at_most <= ratio.low and ratio.high <= claim.at_most:
            return "supported"
        outside = ratio.low > claim.at_most or ratio.high < 1 / claim.at_most
        return "contradicted" if outside else "too close to call"
    if ratio.low > claim.at_least:
        return "supported"
    return "contradicted" if ratio.high < claim.at_least else "too close to call"
