"""The outcomes of claims, in text and JSON. `tests/contract` compares the output of `tfmon diff`."""

from tfmon.model.race import Claim, ClaimResult
from tfmon.model.readings import Estimate
from tfmon.reports.findings import claims_to_json, claims_to_text


def claim(**fields) -> Claim:
    return Claim("an-id", "an article", "says so", "cpu,graph=on", "gpu:0", **fields)


RESULTS = (
    ClaimResult("net", claim(at_least=3), "supported", Estimate(15.6, 15.4, 15.8, 12)),
    ClaimResult("net", claim(at_most=1.1), "refuted", Estimate(15.6, 15.4, 15.8, 12)),
    ClaimResult("net", claim(), "not testable here", reason="it needs a Mac"),
    ClaimResult("other", Claim("flat", "a book", "it is flat", corrected="round"), "corrected", reason="round"),
)


def test_the_text_has_the_claims_by_scenario_and_counts_the_outcomes():
    assert claims_to_text(RESULTS, "interrupted by SIGINT").splitlines() == [
        "net",
        "  supported          an-id  says so",
        "                     cpu,graph=on > gpu:0 by 3.0×: measured 15.6× (15.4 to 15.8, 12 pairs)",
        "  refuted            an-id  says so",
        "                     cpu,graph=on ≈ gpu:0 (within 1.10×): measured 15.6× (15.4 to 15.8, 12 pairs)",
        "  not testable here  an-id  says so",
        "                     it needs a Mac",
        "",
        "other",
        "  corrected          flat   it is flat",
        "                     round",
        "",
        "4 claims: 1 corrected, 1 not testable here, 1 refuted, 1 supported",
        "interrupted by SIGINT",
    ]


def test_the_json_says_the_same():
    told = claims_to_json(RESULTS)
    assert (told["schema"], told["interrupted"]) == (10, None)
    first, _, second, third = told["claims"]
    assert (first["ratio"], first["ratio_ci95"], first["pairs"], first["reason"]) == (15.6, [15.4, 15.8], 12, None)
    assert (second["ratio"], second["ratio_ci95"], second["reason"]) == (None, None, "it needs a Mac")
    assert (third["first"], third["at_least"], third["outcome"]) == (None, None, "corrected")
