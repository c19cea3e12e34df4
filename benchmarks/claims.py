"""Measures the claims of all scenarios and writes the results into scenarios/CLAIMS.md.

It runs the commands that the page names, each once, on a machine with nothing beside them.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

from common import measured_on, options_of, result_of

from tfmon import units

PAGE = Path(__file__).resolve().parents[1] / "scenarios" / "CLAIMS.md"
SLOW = ("resnet50", "transformer")
"""Scenarios whose steps take seconds, which `tfmon verify` leaves out unless they are named."""


def verify(*scenarios: str) -> tuple[list[dict[str, Any]], float]:
    """Return the claims that one run of the command measured, and how long it took in seconds."""
    began = time.monotonic()
    claims: list[dict[str, Any]] = result_of("verify", *scenarios)["claims"]
    return claims, time.monotonic() - began


def cells(claim: dict[str, Any]) -> tuple[str, str]:
    """Return the last two cells of a claim's row: the measured value and the outcome."""
    # The table of outcomes explains an absent device.
    reason = f": {claim['reason']}" if claim["reason"] and " is not there" not in claim["reason"] else ""
    outcome = f"**{claim['outcome']}**{reason}"
    if claim["ratio"] is None:
        return "", outcome
    factor, interval = units.ratio_in(claim["ratio"], *claim["ratio_ci95"])
    return f"{factor} ({interval}, {claim['pairs']} pairs)", outcome


def written(page: str, claims: list[dict[str, Any]]) -> str:
    """Return the page with the results of these claims in their rows; raises SystemExit where one has no row."""
    for claim in claims:
        says = re.escape(claim["says"].rstrip("."))
        row = re.compile(rf"^(\| {says}(?: \(\*.*?\*\))? \| .*?) \| .*? \| .*? \|$", re.MULTILINE)
        measured, outcome = cells(claim)
        page, count = row.subn(lambda found, m=measured, o=outcome: f"{found[1]} | {m} | {o} |", page)
        if count != 1:
            raise SystemExit(f"{PAGE} has {count} rows of {claim['scenario']}: {claim['says']}")
    return page


def main() -> None:
    """Measure, and write the page."""
    options_of(__doc__)
    claims, took_s = verify()
    slow, slow_s = verify(*SLOW)
    page = written(PAGE.read_text("utf-8"), [*claims, *slow])
    counts = Counter(claim["outcome"] for claim in claims)
    for outcome in ("supported", "contradicted", "too close to call", "not testable here", "corrected"):
        page = re.sub(rf"^(\| {outcome} \| .* \|) \d+ \|$", rf"\1 {counts[outcome]} |", page, flags=re.MULTILINE)
    page = re.sub(r"of \d+ claims \|", f"of {len(claims)} claims |", page)
    where = f"Measured on {measured_on()}, in {took_s / 60:.0f} and {slow_s / 60:.0f} minutes."
    PAGE.write_text(re.sub(r"^Measured on .*?$", where, page, flags=re.MULTILINE), "utf-8")
    print(where, dict(counts))


if __name__ == "__main__":
    main()
