"""The page of the recorded races."""

from support.recordings import RECORDED
from support.ui import RUNS, FakeRuns, racing_demo

from tfmon.api.live import Replay
from tfmon.model.ports import RunInfo
from tfmon.recordings.player import Player
from tfmon.recordings.reader import Recording
from tfmon.ui.screens.choices import run_entry
from tfmon.ui.screens.race_screen import RaceScreen, ReplayScreen

from .pilot import app_of, press, shown, until

SIZE = (120, 30)


def listed(pilot) -> list[str]:
    return [line for line in shown(pilot).splitlines()[4:-2] if line[3:5] == "20" and " · " not in line]


async def open_runs(pilot) -> None:
    await press(pilot, "R")
    await until(pilot, lambda: listed(pilot))


async def test_a_run_is_deleted_only_after_a_yes_and_if_it_cannot_be_deleted_or_opened_that_is_said():
    runs = FakeRuns()
    async with app_of(racing_demo(), runs=runs).run_test(size=SIZE) as pilot:
        await open_runs(pilot)
        await press(pilot, "down")
        for answer in ("n", "escape", "enter", "q", "R"):
            await press(pilot, "D")
            assert f"delete {RUNS[2].id} for good?" in shown(pilot)
            await press(pilot, answer)
            assert runs.calls == [] and "for good?" not in shown(pilot), answer
            assert pilot.app.screen.tab == "runs", answer
        await press(pilot, "D", "y")
        await until(pilot, lambda: len(listed(pilot)) == 3)
        assert runs.calls == [("delete", RUNS[2].id)] and "2026-01-03" not in shown(pilot)
        runs.refusal = "it is being written"
        await press(pilot, "home", "D", "y")
        await until(pilot, lambda: runs.refusal in shown(pilot))
        assert len(listed(pilot)) == 3
        runs.refusal = "there is no recording any more"
        await press(pilot, "enter")
        await until(pilot, lambda: runs.refusal in shown(pilot))
        assert pilot.app.screen.tab == "runs"


async def test_enter_plays_a_run_over_the_race_that_goes_on_and_q_comes_back(demo, monkeypatch):
    closed: list[bool] = []
    monkeypatch.setattr(Player, "close", lambda _: closed.append(True))
    recording = Recording(RECORDED)
    app = app_of(demo, runs=FakeRuns(opened=Replay(Player(recording))))
    async with app.run_test(size=SIZE) as pilot:
        await open_runs(pilot)
        await press(pilot, "down", "enter")
        await until(pilot, lambda: isinstance(app.screen, ReplayScreen))
        await press(pilot, "end")
        assert "event" in shown(pilot) and "q back" in shown(pilot).splitlines()[-1]
        await press(pilot, "y")
        assert "tfmon race" in shown(pilot) and "--lane cpu,batch_size=64" in shown(pilot), "the race replayed"
        await press(pilot, "escape")
        assert "7.7k" not in shown(pilot) and "H200" not in shown(pilot), "nothing of the race that runs"
        await press(pilot, "k")
        assert "[k knobs]" in shown(pilot) and "R runs" not in shown(pilot) and "d doctor" not in shown(pilot)
        await press(pilot, "right", "p")
        assert demo.controls.calls == [], "no key of the replay reaches the race that runs"
        await press(pilot, "escape", "b", "r", "space", "home")
        assert isinstance(app.screen, ReplayScreen) and demo.controls.calls == []
        demo.fail("gpu:0")
        app.monitor.pull()
        await press(pilot, "end")
        assert "in the race that runs: gpu:0 failed" in shown(pilot)
        await press(pilot, "q")
        await until(pilot, lambda: closed)
        assert app.screen.tab == "runs" and app.return_value is None, "the race goes on"
        await press(pilot, "escape")
        assert isinstance(app.screen, RaceScreen) and not isinstance(app.screen, ReplayScreen)
        assert "failed" in shown(pilot)
    recording.close()


def test_a_recording_that_cannot_be_read_has_a_mark_and_says_why():
    broken = run_entry(RunInfo("x", "/x", problem="x.jsonl is not a recording of tfmon"))
    assert broken.mark == "✗" and broken.cells[-1] == ("x.jsonl is not a recording of tfmon", "trouble")
