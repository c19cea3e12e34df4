"""The account of a script agrees with the script's own clock, and adds up to the wall time."""

import json
import time
from pathlib import Path

import pytest

from tfmon.analysis.run_account import account_of
from tfmon.model import account as groups

from .test_keras import trained

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]
SLACK_S = 0.1
SAMPLES_S, IN_STEPS_S = 0.4, 1.5
"""Errors besides 5 % of times from samples: a busy machine delays them, and in steps there is one a second."""


def test_the_parts_of_a_run_agree_with_the_clock_of_the_script(watch):
    began_s = time.monotonic()
    race = watch(str(Path(__file__).with_name("clocked.py")))
    trained(race)
    took_s = time.monotonic() - began_s
    output = "\n".join(race.lane.end.event.output_tail)
    own = json.loads(output.partition("own clock ")[2])
    account = account_of(race.lane)
    assert account.over
    assert sum(row.seconds for row in account.rows) == pytest.approx(account.wall_s)
    assert account.wall_s <= took_s + SLACK_S

    def seconds(group: str, part: str = "", line: str = "") -> float:
        rows = (row for row in account.rows if row.group == group and line in row.place)
        return sum(row.seconds for row in rows if not part or row.part == part)

    for name, group, part, line, slack_s in (
        ("imports", groups.START, groups.IMPORTS, "", SAMPLES_S),
        ("loading", groups.BEFORE, groups.LINE, "sleep", SAMPLES_S),
        ("callback", groups.CALLBACKS, "Slow", "", SLACK_S),
        ("between", groups.OUTSIDE, groups.LINE, "sleep", SAMPLES_S),
        ("after", groups.AFTER, groups.LINE, "sleep", IN_STEPS_S),
    ):
        assert seconds(group, part, line) == pytest.approx(own[name], rel=0.05, abs=slack_s), name
    steps_s = seconds(groups.STEPS, groups.CALL) + seconds(groups.STEPS, groups.INPUT)
    # What else tfmon has seen in the steps is in them or between them by the clock of the script.
    others_s = seconds(groups.STEPS) - steps_s + seconds(groups.OWN, "measuring")
    assert steps_s == pytest.approx(own["own steps"] + own["steps of fit"], rel=0.05, abs=SLACK_S + others_s)
    # The wait for a batch is longer than the work of the generator.
    assert seconds(groups.BEFORE, groups.FIRST_BATCH) >= own["first batch"] - SLACK_S
    assert seconds(groups.STEPS, groups.INPUT) >= 0.95 * own["input"] - SLACK_S
