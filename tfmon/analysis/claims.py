"""What a measured ratio says about a claim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tfmon.model.claims import Claim
from tfmon.model.readings import Estimate

Outcome = Literal["supported", "contradicted", "too close to call", "not testable here", "corrected"]


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
