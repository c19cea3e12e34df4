"""`tfmon.race`: the same result as the command, in any thread, one at a time, and nothing left running."""

import asyncio
import contextlib
import json
import signal
import threading
from typing import Any

import psutil
import pytest
from support.waiting import PATIENCE_S, wait_for

import tfmon
from tfmon.api import run_base

LANES = ["cpu,batch_size=10", "cpu,batch_size=20"]
LONG = 1_000
"""Steps of a race that reports its progress."""
QUICK = {"steps": 100, "record": False, "slice_s": 0.2}
"""Of 1 ms or longer: one slice of each lane, however busy the machine is."""


def race(**more):
    return tfmon.race("small-dense", **{"lanes": ["cpu"], "progress": False, **QUICK, **more})


def test_every_public_name_is_there_and_no_other():
    for name in tfmon.__all__:
        assert getattr(tfmon, name).__module__.startswith("tfmon.")
        assert name in dir(tfmon)
    with pytest.raises(AttributeError, match="no attribute 'races'"):
        tfmon.races  # noqa: B018


@pytest.mark.process
@pytest.mark.usefixtures("scripted")
class TestARace:
    @pytest.mark.pythons
    def test_has_the_figures_of_the_command(self, command, tmp_path):
        by_python = race(lanes=LANES, record=tmp_path / "one.jsonl")
        words = ("small-dense", *(word for lane in LANES for word in ("--lane", lane)))
        ran = command("race", *words, "--steps", "100", "--slice", "0.2", "--json", "--no-record")
        by_command = json.loads(ran.out)
        assert fields_of(by_python.to_json()) == fields_of(by_command)
        told = json.loads(command("replay", by_python.recording, "--json").out)
        speeds = [lane["examples_per_s"] for lane in told["lanes"]]
        assert speeds == [lane.examples_per_s for lane in by_python.lanes]
        assert command("replay", by_python.recording, "--headless").out.startswith(by_python.table[:300])
        assert [lane.knobs["batch_size"] for lane in by_python.lanes] == [10, 20]
        assert by_python.lane("B") is by_python.lane("cpu batch_size=20")

    def test_runs_in_a_thread_and_beside_an_event_loop_and_sets_no_handler(self):
        numbers = (*run_base.SIGNALS, signal.SIGTSTP, signal.SIGCONT)
        seen = []

        async def both():
            before = [signal.getsignal(number) for number in numbers]
            result = race(
                progress=lambda _: seen.append([signal.getsignal(number) for number in numbers]), steps=LONG
            )
            assert seen and all(handlers == before for handlers in seen)
            return result, await asyncio.to_thread(race)

        assert [one.lanes[0].state for one in asyncio.run(both())] == ["finished"] * 2

    def test_waits_for_another_or_says_that_there_is_one(self):
        began, go_on, told = threading.Event(), threading.Event(), []

        def hold_up(_line):
            began.set()
            go_on.wait(PATIENCE_S)

        def tell(line):
            told.append(line)
            go_on.set()

        thread = threading.Thread(target=race, kwargs={"progress": hold_up, "steps": LONG})
        thread.start()
        assert began.wait(PATIENCE_S)
        with pytest.raises(tfmon.TfmonError, match="another race is under way"):
            race(wait=False)
        race(progress=tell)
        thread.join()
        assert told[0].startswith("another race is under way")

    def test_that_is_interrupted_ends_its_lanes_and_lets_others_race(self):
        def interrupt(_line):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            race(progress=interrupt, steps=10**6)
        wait_for(lambda: not psutil.Process().children(recursive=True))
        assert race(wait=False).lanes[0].examples_per_s

    def test_whose_lane_fails_says_so_and_has_a_result_all_the_same(self, monkeypatch):
        monkeypatch.setenv("FAILS", "no module named 'keras_hub'")
        with pytest.raises(tfmon.LaneFailedError, match="keras_hub") as failed:
            race()
        assert {lane.state for lane in failed.value.result.lanes} == {"failed"}
        assert race(check=False).winner is None


@pytest.mark.process
def test_a_race_of_another_process_is_waited_for_too(monkeypatch):
    folder = run_base.state_folder()
    folder.mkdir(exist_ok=True)
    refused = pytest.raises(tfmon.TfmonError, match="another race")
    # Python does not wait for a race on a terminal, which may stay open.
    for name, answer in (("race.lock", refused), ("terminal.lock", contextlib.nullcontext())):
        with (folder / name).open("w") as other:
            run_base.fcntl.flock(other, run_base.fcntl.LOCK_EX)
            print(123, end="", file=other, flush=True)
            with run_base.beside() as said:
                assert said.startswith("another race is under way (process 123): ")
            with answer, run_base.alone(False, None):
                pass
    with run_base.alone(False, None):
        pass
    monkeypatch.setattr(run_base.os, "open", lambda *_: (_ for _ in ()).throw(PermissionError()))
    with run_base.alone(False, None), pytest.raises(tfmon.TfmonError), run_base.alone(False, None):
        pass


def fields_of(told: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    return sorted(told), [sorted(lane) for lane in told["lanes"]]
