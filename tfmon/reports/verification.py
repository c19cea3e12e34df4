"""What `tfmon verify` found: every claim with its outcome."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tfmon import units
from tfmon.model.claims import Claim, ClaimResult
from tfmon.model.readings import Estimate
from tfmon.reports import estimate_json, head, text
from tfmon.reports.sections import VERDICT, Item, Items, Note, Report, Section


def to_json(results: Sequence[ClaimResult], interrupted: str = "") -> dict[str, Any]:
    """Return all outcomes as plain values; `interrupted` says why some claims are missing."""
    return {
        **head(),
        "claims": [
            {
                "scenario": result.scenario,
                "id": result.claim.id,
                "source": result.claim.source,
                "says": result.claim.says,
                "first": result.claim.first or None,
                "second": result.claim.second or None,
                "at_least": result.claim.at_least if result.claim.first else None,
                "at_most": result.claim.at_most,
                "outcome": result.outcome,
                **estimate_json("ratio", result.ratio),
                "interval_kind": result.ratio.kind if result.ratio else None,
                "pairs": result.ratio.pairs if result.ratio else None,
                "reason": result.reason or None,
            }
            for result in results
        ],
        "interrupted": interrupted or None,
    }


def to_text(results: Sequence[ClaimResult], interrupted: str = "") -> str:
    """Return the claims by scenario, and the count of each outcome."""
    return text.write(describe(results, interrupted), last=True)


def describe(results: Sequence[ClaimResult], interrupted: str = "") -> Report:
    """Return the claims in a section for each scenario; the answer counts the outcomes."""
    sections = [
        Section(scenario, (Items([_item(one) for one in claims]),))
        for scenario, claims in itertools.groupby(results, lambda one: one.scenario)
    ]
    counts = sorted(Counter(result.outcome for result in results).items())
    total = ", ".join(f"{amount} {outcome}" for outcome, amount in counts)
    answer = [Note(f"{units.several(len(results), 'claim')}: {total or 'none'}", VERDICT)]
    return Report("Claims about scenarios", sections, answer + ([Note(interrupted)] if interrupted else []))


def _item(result: ClaimResult) -> Item:
    claim, ratio = result.claim, result.ratio
    details = [f"{prediction(claim)}: measured {_measured(ratio)}"] if ratio is not None else []
    details += [result.reason] if result.reason else []
    return Item(result.outcome, claim.id, claim.says, tuple(details))


def prediction(claim: Claim) -> str:
    """Write what a claim predicts: `cpu,graph=on` > `cpu,graph=off`."""
    if not claim.first:
        return ""
    if claim.at_most is not None:
        return f"{claim.first} ≈ {claim.second} (within {units.ratio(claim.at_most)})"
    factor = f" by {units.ratio(claim.at_least)}" if claim.at_least > 1 else ""
    return f"{claim.first} > {claim.second}{factor}"


def _measured(ratio: Estimate) -> str:
    """Write a measured ratio: 15.6× (15.4 to 15.8, 12 pairs)."""
    factor, interval = units.ratio_in(ratio.value, ratio.low, ratio.high)
    return f"{factor} ({interval}, {ratio.pairs} pairs)"
