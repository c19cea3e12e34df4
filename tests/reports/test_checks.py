"""The outcomes of claims, in text and JSON. `tests/contract` compares the output of `tfmon diff`."""

from tfmon.model.race import Claim, ClaimResult
from tfmon.model.readings import Estimate
from tfmon.reports.findings import claims_to_json, claims_to_text, prediction


def claim(**fields) -> Claim:
    return Claim("an-id", "an article", "says so", "cpu,graph=on", "cpu,graph=off", **fields)


RESULTS = (
    ClaimResult("net", claim(), "supported", Estimate(15.6, 15.4, 15.8, 12)),
    ClaimResult("net", claim(), "not testable here", reason="it needs a Mac"),
    ClaimResult(
        "other", Claim("flat", "an article", "it is flat", corrected="round"), "corrected", reason="round"
    ),
)


def test_predictions_are_written_as_comparisons():
    assert prediction(claim(at_least=3)) == "cpu,graph=on > cpu,graph=off by 3.0×"
    assert prediction(claim(at_most=1.1)) == "cpu,graph=on ≈ cpu,graph=off (within 1.10×)"
    assert prediction(Claim("an-id", "an article", "says so", corrected="no")) == ""


def test_the_text_has_the_claims_by_scenario_and_counts_the_outcomes():
    assert claims_to_text(RESULTS, "interrupted by SIGINT").splitlines() == [
        "net",
        "  supported          an-id  says so",
        "                     cpu,graph=on > cpu,graph=off: measured 15.6× (15.4 to 15.8, 12 pairs)",
        "  not testable here  an-id  says so",
        "                     it needs a Mac",
        "",
        "other",
        "  corrected          flat   it is flat",
        "                     round",
        "",
        "3 claims: 1 corrected, 1 not testable here, 1 supported",
        "interrupted by SIGINT",
    ]


def test_the_json_says_the_same():
    told = claims_to_json(RESULTS)
    assert (told["schema"], told["interrupted"]) == (10, None)
    first, second, third = told["claims"]
    assert (first["ratio"], first["ratio_ci95"], first["pairs"], first["reason"]) == (15.6, [15.4, 15.8], 12, None)
    assert (second["ratio"], second["ratio_ci95"], second["reason"]) == (None, None, "it needs a Mac")
    assert (third["first"], third["at_least"], third["outcome"]) == (None, None, "corrected")
