"""The end of a race without a key press, its exit code, and profiles in turns."""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.events import window

from tfmon.analysis.verdict import Rank
from tfmon.api import program
from tfmon.api.options import RaceOptions
from tfmon.api.program import Program
from tfmon.errors import EXIT_UNHEALTHY, TfmonError
from tfmon.model.lane_events import SliceEnded
from tfmon.model.lane_state import ABSENT, DONE, FAILED
from tfmon.model.profile import NOT_COUNTED
from tfmon.model.race import CONCURRENT, TURNS, Race
from tfmon.model.readings import Estimate, Missing
from tfmon.model.requests import TakeProfile
from tfmon.model.spec import LaneSpec, name_lanes
from tfmon.probes.host_probe import unknown_host


@pytest.mark.parametrize(
    ("half_widths", "ends"), [((), False), ((0.04,), True), ((0.06,), False), ((0.04, 0.06), False)]
)
def test_a_race_until_ci_ends_once_every_interval_is_narrow(half_widths, ends, monkeypatch):
    ranking = [Rank("A", "cpu", Estimate(1.0, 1 - half, 1 + half, 9)) for half in half_widths]
    analysis = SimpleNamespace(verdict=SimpleNamespace(ranking=ranking))
    monkeypatch.setattr(program, "analyse", lambda snapshot: analysis)
    racing, finished = Program(RaceOptions(until_ci=0.05, record=False)), []
    monkeypatch.setattr(racing.lanes, "finish", lambda: finished.append(True))
    racing.session.begin(Race(), name_lanes([LaneSpec("cpu")]))
    racing.session.accept(SliceEnded(lane="cpu", at_ns=1, round=1))
    assert bool(finished) is ends
    racing.close()


def test_a_race_that_is_to_fail_on_a_concern_ends_with_it_and_with_a_code_of_its_own(monkeypatch):
    racing, finished = Program(RaceOptions(fail_on=("nan",), record=False)), []
    monkeypatch.setattr(racing.lanes, "finish", lambda: finished.append(True))
    racing.session.begin(Race(), name_lanes([LaneSpec("cpu", name="cpu")]))
    for loss, ends in ((0.5, []), (math.nan, [True])):
        racing.session.accept(window(loss=loss))
        racing.session.accept(unknown_host(1, Missing("not read")))
        assert finished == ends
    assert racing._exit_code("") == EXIT_UNHEALTHY
    monkeypatch.setattr(racing.lanes, "end_now", lambda: finished.append("now"))
    racing.end_now()
    assert finished[-1] == "now", "at a second Ctrl+C"
    assert "ended by --fail-on: cpu: the loss is nan" in racing.session.snapshot().race.interrupted
    racing.close()


@pytest.mark.parametrize(
    ("phases", "code"), [((DONE, DONE), 0), ((DONE, FAILED), 1), ((ABSENT, FAILED), 3), ((), 0)]
)
def test_the_exit_code_tells_how_the_lanes_ended(phases, code, monkeypatch):
    racing = Program(RaceOptions(record=False))
    lanes = [SimpleNamespace(phase=phase) for phase in phases]
    monkeypatch.setattr(racing.session, "snapshot", lambda: SimpleNamespace(lanes=lanes))
    assert racing.exit_code() == code


@pytest.mark.parametrize("mode", [TURNS, CONCURRENT])
def test_two_lanes_are_profiled_in_turns_each_alone(mode, monkeypatch, tmp_path):
    racing, calls = Program(RaceOptions(record=False)), []
    racing.session.begin(Race(mode=mode), name_lanes([LaneSpec("cpu"), LaneSpec("cpu", {"batch_size": 2})]))
    names = [lane.spec.name for lane in racing.session.snapshot().lanes]
    monkeypatch.setattr(racing.lanes, "set_exclusive", lambda lane: calls.append(("alone", lane)))

    def profile(lane: str, request: TakeProfile) -> None:
        assert request.counters == NOT_COUNTED, "a lane without a process has nothing to count"
        calls.append((lane, str(Path(request.folder).relative_to(tmp_path)), Path(request.chrome).name))
        if len([call for call in calls if call[0] != "alone"]) == 4:
            raise TfmonError("no profile could be taken")

    monkeypatch.setattr(racing.profiles, "_answer", profile)
    with pytest.raises(TfmonError, match="no profile could be taken"):
        racing.profiles.in_turns(names, tmp_path, times=3)
    assert [call for call in calls if call[0] != "alone"] == [
        (names[0], "A/1", "A.json"), (names[1], "B/1", "B.json"), (names[0], "A/2", ""), (names[1], "B/2", ""),
    ]  # fmt: skip
    alone = [lane for what, lane, *_ in calls if what == "alone"]
    assert alone == ([*names, *names, ""] if mode == CONCURRENT else [])
    racing.close()
