"""A thread of tfmon dies of an injected error: nothing hangs, and the reason is displayed."""

import ast
import queue
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.lanes import RacingGroup
from support.processes import gone
from support.slow import slow_except
from support.sweeps import SimulatedStation, planned
from support.tunings import tuning
from support.ui import Demo
from support.waiting import LOOK_S, PATIENCE_S, wait_for
from trainer.racing import Race
from ui.pilot import app_of, shown, until

import tfmon
from tfmon.lanes.watchdog import Watchdog
from tfmon.model.events import LanePrinted
from tfmon.model.lane_state import FAILED
from tfmon.model.race import Machine
from tfmon.model.readings import Missing
from tfmon.model.session import Session
from tfmon.probes.base import Ticker
from tfmon.probes.host_probe import HostProbe
from tfmon.recordings.recorder import Recorder
from tfmon.series.engine import Series
from tfmon.series.series_control import ExperimentControl
from tfmon.series.sweep import SweepPolicy
from tfmon.system import threads

PACKAGE = Path(tfmon.__file__).parent
ROOT = PACKAGE.parent
DIES = """
import sys
sys.path.insert(0, {root!r})
from tfmon.system import threads
own = threads.guarded
def die():
    raise RuntimeError("injected")
threads.guarded = lambda name, work, failed: own(name, die if name == {name!r} else work, failed)
"""
SCRIPT = """
import time
from tfmon import report
for step in range(300):
    time.sleep(0.002)
    report.step(examples=4, loss=1 / (step + 1))
print("trained to the end", flush=True)
"""
OF_THE_GROUP: dict[str, Callable[[RacingGroup], object]] = {
    "tfmon-reader": lambda _: None,
    "tfmon-watchdog": lambda group: Watchdog(group.session.snapshot, group, print).start(group.thread_failed),
    "tfmon-change": lambda group: group.finish(),
    "tfmon-seconds": lambda group: group.suspension.call_after(0.0, group.finish),
    "tfmon-suspension": lambda group: (group.suspension.suspend_lanes(), group.suspension.continue_lanes()),
}
"""How each thread of a group is started whose death ends the race."""
OF_A_CHILD = ("tfmon-inbox", "tfmon-build", "tfmon-discard")


def die() -> None:
    raise RuntimeError("injected")


@pytest.fixture
def deadly(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Kill a thread of this process as soon as it starts, and return the beginning of the reason."""

    def choose(name: str) -> str:
        own = threads.guarded

        def guarded(thread: str, work: Callable[[], object], failed: threads.Failed) -> None:
            own(thread, die if thread == name else work, failed)

        monkeypatch.setattr(threads, "guarded", guarded)
        return f"tfmon's thread {name} failed: RuntimeError: injected"

    return choose


def test_every_thread_is_started_by_the_helper():
    """`start_thread` and its variants require a function that handles the death of the thread."""
    for path in PACKAGE.rglob("*.py"):
        # The sampler of stacks starts before tfmon is loaded; tests/scripts/test_stacks.py has its test.
        if path.name == "threads.py" or path == PACKAGE / "hooks" / "stacks.py":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            used = [node.func] if isinstance(node, ast.Call) else getattr(node, "bases", ())
            names = {getattr(part, "attr", getattr(part, "id", "")) for part in used}
            assert not names & {"Thread", "Timer", "start_new_thread"}, f"{path}:{node.lineno}"


@pytest.mark.process
@pytest.mark.parametrize("name", list(OF_THE_GROUP))
def test_the_race_ends_with_the_reason_and_leaves_no_process(group, deadly, name):
    if name != "tfmon-reader":
        group.begin(group.plan("cpu"))
        group.wait_for_steps("cpu")
    reason = deadly(name)
    if name == "tfmon-reader":
        group.begin(group.plan("cpu"))
    (process,) = group._processes.values()
    OF_THE_GROUP[name](group)
    wait_for(lambda: group.lane("cpu").phase == FAILED, what="the lane has failed")
    assert group.lane("cpu").trouble.message.startswith(reason)
    assert group.all_over
    wait_for(lambda: gone(process.pid) or process.poll(), what="the process is gone")
    group.restart(["cpu"])
    group.begin(group.plan("cpu"))
    assert not [pid for pid in group.pids().values() if pid != process.pid]


def test_an_experiment_ends_with_the_reason(deadly):
    demo = Demo(mode="turns").go()
    control, reason = ExperimentControl(demo.session, demo.controls), deadly("tfmon-series")
    control.run(tuning("cpu"))
    wait_for(lambda: demo.session.snapshot().experiment.over, what="the experiment is over")
    assert demo.session.snapshot().experiment.ended.startswith(reason)
    control.run(tuning("cpu"))  # the next one is not refused


def test_a_sweep_ends_with_the_reason(deadly):
    sweep, reason = Series(planned(), SweepPolicy(), [SimulatedStation()], print), deadly("tfmon-series")
    sweep.start()
    wait_for(lambda: sweep.join(LOOK_S), what="the sweep has ended")
    assert sweep.state.over and sweep.state.ended.startswith(reason)


def test_a_recording_ends_with_the_reason_as_on_a_full_disk(deadly, tmp_path):
    session, reason = Session(Machine(), time.monotonic_ns), deadly("tfmon-recorder")
    recorder = Recorder(session, Path(sys.executable), tmp_path / "race.jsonl")
    wait_for(lambda: session.snapshot().recording, what="it is told")
    assert session.snapshot().recording.reason.startswith(reason)
    recorder.close()


def test_the_readings_of_a_probe_are_missing_with_the_reason(deadly):
    probe, told = HostProbe(dict), queue.SimpleQueue()
    reason = deadly(f"tfmon-{probe.name}")
    Ticker(probe, told.put).start()
    missing = told.get(timeout=PATIENCE_S).cpu_pct
    assert isinstance(missing, Missing) and missing.reason.startswith(reason)


async def test_the_screen_shows_the_reason(deadly):
    app = app_of(Demo())
    async with app.run_test(size=(120, 36)) as pilot:
        deadly("tfmon-ui")
        app.monitor.work(list)
        await until(pilot, lambda: "tfmon's thread tfmon-ui failed: RuntimeError: injected" in shown(pilot))


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", slow_except("tfmon-inbox", OF_A_CHILD))
def test_a_lane_of_a_scenario_fails_with_the_reason(name, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(DIES.format(root=str(ROOT), name=name))
    race = Race(ROOT / "scenarios" / "small_dense.py", environment={"PYTHONPATH": str(tmp_path)})
    try:
        race.until(lambda: race.lane.phase == FAILED, "the lane has failed")
        assert race.lane.trouble.message.startswith(f"tfmon's thread {name} failed: RuntimeError: injected")
        wait_for(lambda: race.lanes.all_over, what="its process has ended")
    finally:
        race.lanes.stop()


@pytest.mark.process
def test_a_script_trains_to_its_end_and_is_not_measured(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(DIES.format(root=str(ROOT), name="tfmon-inbox") + SCRIPT)
    race = Race(Path("script.py"), command=(sys.executable, str(path)))
    try:
        race.until(lambda: race.lane.end.event is not None, "the end")
        lane = race.lane
        assert lane.end.event.exit_code == 0
        assert any("trained to the end" in line for event in race.of(LanePrinted) for line in event.lines)
        assert lane.phase == FAILED and "the script trains on, and is not measured" in lane.trouble.message
        assert lane.trouble.message.startswith("tfmon's thread tfmon-inbox failed: RuntimeError: injected")
    finally:
        race.lanes.stop()
