"""The command that repeats a race, read again by the real command line: the same lanes and settings."""

import shlex
import sys
from dataclasses import replace

import pytest
from support.ui import CPU_MACHINE, Demo

from tfmon.api.options import RaceOptions
from tfmon.api.planner import plan_race
from tfmon.api.repeat_command import command_line
from tfmon.catalog import command_scenario, find_scenario
from tfmon.cli import race_commands
from tfmon.cli.main import cli
from tfmon.errors import UsageError
from tfmon.lanes.plan import RacePlan
from tfmon.model.events import LaneStarted
from tfmon.model.race import ScenarioInfo
from tfmon.model.session import Snapshot
from tfmon.model.spec import LaneSpec
from tfmon.probes.find_gpus import GpuSearch

NO_GPU = GpuSearch((), "no GPU", "")


class Started(Exception):
    pass


@pytest.fixture
def again(monkeypatch):
    """Return what plans the race of a command line through the real parser."""

    def start(chosen, *_rest, **_more):
        raise Started(chosen.info, chosen)

    monkeypatch.setattr(race_commands, "_start", start)

    def planned(line: str) -> RacePlan:
        program, *words = shlex.split(line)
        assert program == "tfmon"
        with pytest.raises(Started) as raised:
            cli.main(words, standalone_mode=False)
        return plan_race(*raised.value.args, lambda _: NO_GPU)[0]

    return planned


def started(specs, info: ScenarioInfo, *settings, command: str = "", mode: str = "turns") -> Snapshot:
    demo = Demo(specs, CPU_MACHINE, info.knobs, mode=mode)
    demo.session.begin(replace(demo.session.snapshot().race, scenario=info.name), demo.specs)
    for spec, values in zip(demo.specs, settings, strict=True):
        demo.session.accept(LaneStarted(lane=spec.name, at_ns=1, pid=1, settings=values, command=command))
    return demo.session.snapshot()


def race_of(scenario: str, *lanes: dict[str, object], mode: str = "turns") -> tuple[Snapshot, RacePlan]:
    """Return the snapshot of a race whose lanes have these settings in effect, and its plan."""
    info, cpus = find_scenario(scenario), ("cpu",) * len(lanes)
    settings = [{**info.defaults(), **lane} for lane in lanes]
    plan, _ = plan_race(info, RaceOptions(lanes=cpus, mode=mode), lambda _: NO_GPU)
    return started(list(map(LaneSpec, cpus)), info, *settings, mode=mode), plan


def lanes_of(race: Snapshot | RacePlan) -> list[tuple[str, dict[str, object]]]:
    return [(lane.spec.device, dict(lane.settings)) for lane in race.lanes]


@pytest.mark.parametrize(
    "lanes",
    [
        ({}, {}),
        ({"batch_size": 64, "graph": False, "prefetch": 1}, {"batch_size": 64, "xla": True}),
        ({"mixed_precision": "bfloat16", "threads": 4}, {"prefetch": "off", "sync_every_step": True}, {}),
        ({"prefetch": 2},),
    ],
)
def test_the_command_gives_the_same_lanes_and_settings(again, lanes):
    snapshot, plan = race_of("small-dense", *lanes)
    assert lanes_of(again(command_line(snapshot, plan))) == lanes_of(snapshot)
    assert lanes_of(again(command_line(snapshot))) == lanes_of(snapshot), "of a replay"


def test_the_command_names_the_hosts(again):
    lanes = LaneSpec("cpu"), LaneSpec("cpu", host="me@gpu2")
    line = command_line(started(lanes, find_scenario("small-dense"), {}, {}))
    assert "--lane cpu --lane me@gpu2/cpu" in line
    assert [lane.spec.host for lane in again(line).lanes] == ["", "me@gpu2"]


def test_what_all_lanes_share_is_said_once_and_a_default_not_at_all():
    snapshot, plan = race_of("small-dense", {"batch_size": 16, "graph": False}, {"batch_size": 64, "graph": False})
    line = command_line(snapshot, plan)
    assert line == "tfmon race small-dense --lane cpu,batch_size=16 --lane cpu,batch_size=64 --set graph=off"


def test_mode_slice_length_and_limits_are_those_of_the_race(again):
    snapshot, plan = race_of("small-dense", {}, {"batch_size": 8}, mode="concurrent")
    snapshot = replace(snapshot, race=replace(snapshot.race, seconds=12.5, until_ci=0.05))
    found = again(command_line(snapshot, replace(plan, race=replace(plan.race, slice_s=1.25))))
    assert (found.race.mode, found.race.slice_s, found.race.seconds) == ("concurrent", 1.25, 12.5)
    snapshot, plan = race_of("small-dense", {}, {"batch_size": 8})
    snapshot = replace(snapshot, race=replace(snapshot.race, steps=300, until_ci=0.05))
    line = command_line(snapshot, plan)
    assert again(line).race.steps == 300 and "--until-ci 5%" in line and "--mode" not in line


def test_a_scenario_of_the_users_own_is_named_by_its_path(again, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "a b" / "small_dense.py"
    mine.parent.mkdir()
    mine.write_bytes(find_scenario("small-dense").path.read_bytes())
    snapshot, plan = race_of(str(mine), {"batch_size": 8}, {"batch_size": 16})
    found = again(command_line(snapshot, plan))
    assert found.scenario == mine and lanes_of(found) == lanes_of(snapshot)


def test_a_script_keeps_its_arguments_and_the_knobs_it_was_given(again):
    words = (sys.executable, "my train.py", "--epochs", "3", "--name", "it's $HOME")
    info = command_scenario(words)
    settings = ({"learning_rate": 0.1 + 0.2, "wide": True}, {"learning_rate": 1e-07, "wide": True})
    lanes = [LaneSpec("cpu", {**setting}) for setting in settings]
    in_effect = [{**setting, "batch_size": 32} for setting in settings]
    line = command_line(started(lanes, info, *in_effect, command=shlex.join(words)))
    found = again(line)
    assert found.command == words
    assert [lane.spec.settings | {"wide": lane.settings["wide"]} for lane in found.lanes] == list(settings)
    assert "batch_size" not in line, "what the script told by itself cannot be set"


def test_a_value_with_a_comma_is_refused_where_only_a_lane_could_say_it():
    settings, words = [{"layers": "64,32"}, {"layers": "64"}], (sys.executable, "train.py")
    lanes = [LaneSpec("cpu", setting) for setting in settings]
    raced = started(lanes, command_scenario(words), *settings, command=shlex.join(words))
    with pytest.raises(UsageError, match=r"layers=64,32 cannot be set for one lane"):
        command_line(raced)
