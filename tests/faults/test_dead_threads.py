"""A death is injected into every thread of tfmon: nothing hangs, and the reason is told."""

from __future__ import annotations

import ast
import json
import os
import queue
import re
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.lanes import RacingGroup, group, patient
from support.processes import gone, run_python
from support.slow import slow_except
from support.sweeps import SimulatedStation, planned
from support.ui import Demo
from support.waiting import HANGS_S, LOOK_S, PATIENCE_S, wait_for
from trainer.racing import Race
from ui.pilot import app_of, shown, until

import tfmon
from tfmon.api.run import closed_terminal
from tfmon.experiments.control import ExperimentControl
from tfmon.experiments.sweep import Sweep
from tfmon.lanes.children import Children
from tfmon.lanes.remote.agent import Agent
from tfmon.lanes.remote.frames import Frame, FrameReader, Kind
from tfmon.lanes.script_input import ScriptInput
from tfmon.lanes.watchdog import Watchdog
from tfmon.model import threads
from tfmon.model.events import LanePrinted
from tfmon.model.lane_state import DONE, FAILED
from tfmon.model.race import Machine
from tfmon.model.readings import Missing
from tfmon.model.requests import Stop
from tfmon.model.script_events import StackReported
from tfmon.model.series import TuneState
from tfmon.model.session import Session
from tfmon.probes.base import Ticker, within
from tfmon.probes.host import HostProbe
from tfmon.recordings.recorder import Recorder
from tfmon.script.watching import tell_later
from tfmon.trainer import channel

__all__ = ["group", "patient"]

PACKAGE = Path(tfmon.__file__).parent
ROOT = PACKAGE.parent
DIES = """
import sys
sys.path.insert(0, {root!r})
from tfmon.model import threads
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
    "tfmon-watchdog": lambda group: watch(group),
    "tfmon-change": lambda group: group.finish(),
    "tfmon-seconds": lambda group: group.running.suspension.call_after(0.0, group.finish),
    "tfmon-suspension": lambda group: (
        group.running.suspension.suspend_lanes(),
        group.running.suspension.continue_lanes(),
    ),
    "tfmon-spare": lambda group: group._children.load_spare(group.finish),
    "tfmon-reconnect": lambda group: threads.start_thread(
        "tfmon-reconnect", group.finish, group.running.thread_failed
    ),
}
"""How each thread of a group is started whose death ends the race."""
OF_A_CHILD = ("tfmon-inbox", "tfmon-build", "tfmon-discard")
OF_A_SCRIPT = ("tfmon-inbox",)
OF_THE_BRIDGE = ("tfmon-connect", "tfmon-head", "tfmon-down", "tfmon-monitor")
OTHERS = {
    *("tfmon-stop", "tfmon-others", "tfmon-stack", "tfmon-experiment", "tfmon-sweep", "tfmon-recorder"),
    *("tfmon-end", "tfmon-exit", "tfmon-", "tfmon-driver", "tfmon-answer", "tfmon-readings", "tfmon-ui"),
    *("tfmon-leave", "tfmon-notify", "tfmon-metrics", "tfmon-terminal", "tfmon-stops", "tfmon-input"),
}
"""Of tests with a name of their own below; those of a probe are named after it."""
ELSEWHERE = {
    "tfmon-host-",
    "tfmon-tell-",
    "tfmon-hangup",
    "tfmon-listen",
    "tfmon-viewer",
    "tfmon-view",
    "tfmon-watch",
}
"""In test_losses and test_lanes of tests/lanes/remote; in test_run, test_runner and test_watch of tests/api."""


def die() -> None:
    raise RuntimeError("injected")


def watch(group: RacingGroup) -> None:
    running = group.running
    Watchdog(group.session.snapshot, running, running.suspension.record).start(running.thread_failed)


@pytest.fixture
def deadly(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Let a thread of this process die as soon as it is started, and return how its reason begins."""

    def choose(name: str) -> str:
        own = threads.guarded

        def guarded(thread: str, work: Callable[[], object], failed: threads.Failed) -> None:
            own(thread, die if thread == name else work, failed)
            choose.dead.append(thread)

        monkeypatch.setattr(threads, "guarded", guarded)
        return f"tfmon's thread {name} failed: RuntimeError: injected"

    choose.dead = []
    return choose


# ---------------------------------------------------------------- no thread is forgotten


def test_every_thread_is_started_by_the_helper_and_tried_here():
    names = set()
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        own = path.name == "threads.py"
        for node in ast.walk(tree):
            said = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            assert own or not re.search(r"\b(Thread|Timer|start_new_thread)$", said), (
                f"{path}:{node.lineno}: {said}"
            )
            if isinstance(node, ast.ClassDef):
                bases = [ast.unparse(base) for base in node.bases]
                assert not any(base.endswith(("Thread", "Timer")) for base in bases), f"{path}: {node.name}"
            if not said or not node.args:
                continue
            first = node.args[0].values[0] if isinstance(node.args[0], ast.JoinedStr) else node.args[0]
            name = first.value if isinstance(first, ast.Constant) else ""
            if said in ("start_thread", "start_hidden", "call_later") or (said == "start" and name):
                names.add(name)
    assert names == {*OF_THE_GROUP, *OF_A_CHILD, *OF_A_SCRIPT, *OF_THE_BRIDGE, *ELSEWHERE, *OTHERS}


# ---------------------------------------------------------------- the monitor


def test_a_race_goes_on_whose_terminal_is_no_longer_watched(deadly):
    deadly("tfmon-terminal")
    with closed_terminal(lambda: pytest.fail("its terminal is open")):
        wait_for(lambda: "tfmon-terminal" in deadly.dead)


@pytest.mark.process
@pytest.mark.parametrize("name", list(OF_THE_GROUP))
def test_the_race_ends_with_the_reason_and_leaves_no_process(group, deadly, monkeypatch, name):
    monkeypatch.setattr(Children, "spares_loading", True)
    if name != "tfmon-reader":
        group.begin(group.plan("cpu"))
        group.wait_for_steps("cpu")
    reason = deadly(name)
    if name == "tfmon-reader":
        group.begin(group.plan("cpu"))
    (process,) = group._children.all()
    OF_THE_GROUP[name](group)
    wait_for(lambda: group.lane("cpu").phase == FAILED, what="the lane has failed")
    assert group.lane("cpu").trouble.message.startswith(reason)
    assert group.running.all_over
    wait_for(lambda: gone(process.pid) or process.poll(), what="the process is gone")
    group.restart(["cpu"])
    group.begin(group.plan("cpu"))
    assert not [pid for pid in group.running.processes().values() if pid != process.pid]


@pytest.mark.process
def test_a_lane_trains_on_if_stops_by_other_programs_are_no_longer_seen(group, deadly):
    deadly("tfmon-stops")
    group.begin(group.plan("cpu"))
    group.wait_for_steps("cpu")
    assert "tfmon-stops" in deadly.dead
    group.finish()
    wait_for(lambda: group.lane("cpu").phase == DONE, what="the lane is done")


def test_why_a_script_gets_no_more_input_is_told(deadly):
    reason, told = deadly("tfmon-input"), []
    read_fd, write_fd = os.pipe()
    try:
        os.close(ScriptInput(read_fd, single=False).open(told.append))
        wait_for(lambda: told, what="the reason")
        assert told[0].startswith(reason)
    finally:
        os.close(read_fd)
        os.close(write_fd)


@pytest.mark.process
def test_processes_that_could_not_be_ended_at_once_are_ended_with_the_program(group, deadly):
    group.begin(group.plan("cpu"))
    group.wait_for_steps("cpu")
    deadly("tfmon-end")
    group.running.thread_failed("a thread has died")
    assert group.running.all_over and group.lane("cpu").phase == FAILED
    group.stop()
    assert not group.running.processes()


@pytest.mark.process
def test_stacks_that_cannot_be_read_are_told(group, deadly, monkeypatch):
    group.begin(group.plan("cpu"))
    group.wait_for_steps("cpu")
    told: queue.SimpleQueue[StackReported] = queue.SimpleQueue()
    group.session.listen(lambda event: told.put(event) if isinstance(event, StackReported) else None)
    known = group.session.snapshot()
    lane = known.lane("cpu")
    lane = replace(lane, process=replace(lane.process, reports_stack=True))
    reason = deadly("tfmon-stack")
    monkeypatch.setattr(group.session, "snapshot", lambda: replace(known, lanes=(lane,)))
    group.ask_stack("cpu")
    assert told.get(timeout=PATIENCE_S).lines[0].startswith(reason)


def test_an_experiment_ends_with_the_reason(deadly):
    demo = Demo(mode="turns").go()
    control, reason = ExperimentControl(demo.session, demo.controls), deadly("tfmon-experiment")
    control.run(TuneState("cpu"))
    wait_for(lambda: demo.session.snapshot().experiment.over, what="the experiment is over")
    assert demo.session.snapshot().experiment.ended.startswith(reason)
    control.run(TuneState("cpu"))  # the next one is not refused


def test_a_sweep_ends_with_the_reason(deadly):
    sweep, reason = Sweep(planned(), [SimulatedStation()], print), deadly("tfmon-sweep")
    sweep.start()
    wait_for(lambda: sweep.join(LOOK_S), what="the sweep has ended")
    assert sweep.ranking.state.over and sweep.ranking.state.ended.startswith(reason)


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


def test_what_a_driver_does_not_answer_is_unknown(deadly):
    deadly("tfmon-driver")
    assert within(PATIENCE_S, lambda: "an answer") is None


@pytest.mark.parametrize("asked", ["answer", "readings"])
def test_an_agent_says_why_it_has_no(asked, deadly, tmp_path):
    reason = deadly(f"tfmon-{asked}")
    (in_fd, in_end), (out_end, out_fd) = os.pipe(), os.pipe()
    agent = Agent(tmp_path, in_fd, out_fd)
    if asked == "answer":
        agent._ask(Frame(Kind.ASK, 7, b"{}"))
    else:
        agent._read_machine(Frame(Kind.READ, 0, b'{"gpus": []}'))
    frames: list[Frame] = []

    def came() -> bool:
        agent._outbox.collect()
        agent._outbox.write(out_fd)
        if not agent._outbox.empty or not frames:
            os.set_blocking(out_end, False)
            try:
                frames.extend(reader.take(os.read(out_end, 65_536)))
            except BlockingIOError:
                return False
        return bool(frames)

    reader = FrameReader()
    wait_for(came, what="a frame")
    assert reason in json.dumps(json.loads(frames[0].payload))
    for fd in (in_fd, in_end, out_fd, out_end):
        os.close(fd)


async def test_the_screen_shows_the_reason(deadly):
    app = app_of(Demo())
    async with app.run_test(size=(120, 36)) as pilot:
        deadly("tfmon-ui")
        app.monitor.work(list)
        await until(pilot, lambda: "tfmon's thread tfmon-ui failed: RuntimeError: injected" in shown(pilot))


# ---------------------------------------------------------------- the children


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", slow_except("tfmon-build", OF_A_CHILD))
def test_a_lane_of_a_scenario_fails_with_the_reason(name, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(DIES.format(root=str(ROOT), name=name))
    race = Race(ROOT / "scenarios" / "small_dense.py", environment={"PYTHONPATH": str(tmp_path)})
    try:
        race.until(lambda: race.lane.phase == FAILED, "the lane has failed")
        assert race.lane.trouble.message.startswith(f"tfmon's thread {name} failed: RuntimeError: injected")
        wait_for(lambda: race.lanes.running.all_over, what="its process has ended")
    finally:
        race.lanes.stop()


@pytest.mark.process
@pytest.mark.parametrize("name", OF_A_SCRIPT)
def test_a_script_trains_to_its_end_and_is_not_measured(name, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(DIES.format(root=str(ROOT), name=name) + SCRIPT)
    race = Race(Path("script.py"), command=(sys.executable, str(path)))
    try:
        race.until(lambda: race.lane.end.event is not None, "the end")
        lane = race.lane
        assert lane.end.event.exit_code == 0
        assert any("trained to the end" in line for event in race.of(LanePrinted) for line in event.lines)
        assert lane.phase == FAILED and "the script trains on, and is not measured" in lane.trouble.message
        assert lane.trouble.message.startswith(f"tfmon's thread {name} failed: RuntimeError: injected")
    finally:
        race.lanes.stop()


def test_a_lane_that_is_told_to_stop_says_why_it_cannot_end_itself(deadly, monkeypatch):
    monkeypatch.setattr(channel, "GRACE_S", 0.0)
    monkeypatch.setattr(channel, "exit_now", lambda _: None)
    monkeypatch.setattr(channel, "end_group", lambda: None)
    said, reason = queue.SimpleQueue(), deadly("tfmon-stop")
    read_fd, write_fd = os.pipe()
    inbox = channel.start_inbox(read_fd, lambda _: None, said.put)
    os.write(write_fd, channel.encode_message(Stop()))
    assert said.get(timeout=PATIENCE_S).startswith(reason)
    os.close(write_fd)
    inbox.join(PATIENCE_S)
    os.close(read_fd)


def test_a_hint_that_cannot_be_given_is_left_away_without_a_word(deadly, monkeypatch):
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    deadly("tfmon-others")
    tell_later(0.001, "PyTorch trains here")
    wait_for(lambda: "tfmon-others" in deadly.dead, what="the thread is dead")
    assert not told


# ---------------------------------------------------------------- what ends a whole process


@pytest.mark.process
@pytest.mark.parametrize("name", ["tfmon-leave", *OF_THE_BRIDGE])
def test_a_process_whose_thread_dies_ends(name):
    """The threads of the bridge need a Ray cluster, so one of each name is started as they start theirs."""
    start = "live.leave_anyway(lambda: None)"
    if name != "tfmon-leave":
        start = f"threads.start_thread({name!r}, die, ray_bridge.Channel().fail_thread)"
    code = DIES.format(root=str(ROOT), name=name) + (
        "import time\n"
        + (
            "from tfmon.api import live\n"
            if name == "tfmon-leave"
            else "from tfmon.lanes.remote import ray_bridge\n"
        )
        + f"{start}\ntime.sleep({HANGS_S})\n"
    )
    done = run_python("-c", code)
    assert done.returncode == (130 if name == "tfmon-leave" else 1), done.stderr
    if name != "tfmon-leave":
        assert f"tfmon's thread {name} failed: RuntimeError: injected" in done.stderr
