"""A user's process as a lane: who joins it, what it heeds, and that it is left as it is. Without TensorFlow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.waiting import wait_for

from tfmon.model.events import LanePrinted
from tfmon.model.lane_events import (
    Hello,
    KnobApplied,
    KnobOffered,
    KnobRefused,
    PhaseEntered,
    SliceEnded,
    StackReported,
    Window,
)
from tfmon.model.lane_state import DONE, FAILED, PAUSED, RACING, READY
from tfmon.model.requests import RunSlice

LOOP = """
import time, sys
from tfmon import report
def train(seconds, examples=4):
    end = time.monotonic() + seconds
    steps = 0
    while time.monotonic() < end:
        time.sleep(0.002)
        report.step(examples=examples, loss=1 / (steps + 1))
        steps += 1
    return steps
"""
TOLD = "import os, sys, json; print(json.dumps({}), flush=True)\n"


def output(race) -> str:
    race.until(lambda: race.lane.ended is not None, "the end")
    return "\n".join(race.lane.ended.output_tail)


def told(race) -> object:
    return json.loads(output(race).splitlines()[0])


# ------------------------------------------------------------ left as it is


def test_arguments_path_and_modules_are_those_of_a_run_without_tfmon(watch, script, monkeypatch, tmp_path):
    (tmp_path / "more").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "more"))
    path = script(TOLD.format("[sys.argv, sys.path, sorted(set(sys.modules) - {'sitecustomize'}), os.getcwd()]"))
    alone = subprocess.run([sys.executable, path, "--a", "b c"], capture_output=True, text=True, check=True)
    assert told(watch(path, "--a", "b c")) == json.loads(alone.stdout)


def test_the_scripts_own_sitecustomize_runs(watch, script, monkeypatch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.own = __file__\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    path = script(TOLD.format("[sys.own, sys.modules['sitecustomize'].__file__]"))
    assert told(watch(path)) == [str(tmp_path / "sitecustomize.py")] * 2


@pytest.mark.parametrize(
    ("ending", "code", "words"),
    [
        ("sys.exit(3)", 3, "the script left with exit code 3"),
        ("raise ValueError('no data')", 1, "the script left with exit code 1: ValueError: no data"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", None, "the script was ended by SIGTERM"),
        ("", 0, "the script ended, and no training step was seen"),
    ],
    ids=["exit", "exception", "signal", "no step"],
)
def test_a_bad_end_is_told_in_the_scripts_own_words(watch, script, ending, code, words):
    race = watch(script("import sys\n" + ending))
    output(race)
    assert (race.lane.phase, race.lane.ended.exit_code) == (FAILED, code)
    assert race.lane.trouble.message == words


def test_a_script_that_prints_much_is_not_kept_waiting(watch, script):
    race = watch(script(LOOP + "print('x' * 50_000_000)\ntrain(0.8)\nprint('last')"))
    assert output(race).splitlines()[-1] == "last"
    assert race.lane.phase == DONE


def test_a_program_that_is_no_python_is_a_lane_without_steps(watch):
    race = watch("/bin/echo", "hello")
    assert output(race) == "hello"
    assert "report.step" in race.lane.trouble.hint


# ------------------------------------------------------------ who is the lane


@pytest.mark.parametrize(
    "start",
    [
        "exec {python} {path}",
        "{python} {path}",
        "cd {folder} && {python} -m {module}",
        "{python} -c \"import subprocess, sys; sys.exit(subprocess.call(['{python}', '{path}']))\"",
    ],
    ids=["exec", "shell", "module", "launcher that closes descriptors"],
)
def test_whatever_starts_python_its_steps_are_seen(watch, script, start):
    path = Path(script(LOOP + "train(0.7)"))
    words = start.format(python=sys.executable, path=path, folder=path.parent, module=path.stem)
    race = watch("/bin/sh", "-c", words)
    output(race)
    assert (race.lane.phase, race.lane.steps > 50) == (DONE, True)


def test_only_the_first_process_that_trains_is_the_lane(watch, script):
    forks = """
import os
train(0.1)
pid = os.fork()
train(0.6)
if not pid:
    os._exit(0)
os.wait()
print(os.getpid())
"""
    race = watch(script(LOOP + forks))
    pid = int(output(race).splitlines()[-1])
    assert [event.pid for event in race.of(Hello)] == [pid]
    assert race.lane.steps <= 0.7 / 0.002


def test_a_forked_process_that_ends_as_python_does_says_nothing_for_the_lane(watch, script):
    forks = """
import os
print(train(0.3), flush=True)
pid = os.fork()
if not pid:
    train(0.1)
    sys.exit()
os.wait()
print(train(0.3))
"""
    race = watch(script(LOOP + forks))
    said = [int(line) for line in output(race).splitlines()]
    assert sum(window.steps for window in race.of(Window)) == sum(said) - 1, "the first call starts the clock"


def test_a_script_that_executes_itself_anew_is_still_the_lane(watch, script):
    again = (
        "if 'again' not in sys.argv:\n    train(0.1)\n"
        "    os.execv(sys.executable, [sys.executable, *sys.argv, 'again'])\ntrain(0.7)"
    )
    race = watch(script("import os\n" + LOOP + again))
    output(race)
    assert race.lane.phase == DONE
    pids = {event.pid for event in race.of(Hello)}
    assert len(race.of(Hello)) == 2 and len(pids) == 1


def test_the_next_process_is_the_lane_when_the_first_has_ended(watch, script):
    path = script(LOOP + "print(train(0.9))")
    race = watch("/bin/sh", "-c", f"{sys.executable} {path}; {sys.executable} {path}")
    said = [int(line) for line in output(race).splitlines()]
    assert len(race.of(Hello)) == 2
    assert sum(window.steps for window in race.of(Window)) == sum(said) - 2, "the first call starts the clock"


# ------------------------------------------------------------ what it heeds


def test_it_gets_ready_races_pauses_and_goes_on(watch, script):
    race = watch(script(LOOP + "train(60)"))
    race.until_event(PhaseEntered, lambda event: event.phase == RACING)
    assert race.phases.index(READY) < race.phases.index(RACING)
    race.until(lambda: race.lane.steady.windows >= 2, "steady windows")
    race.lanes.pause([race.name])
    race.until_event(PhaseEntered, lambda event: event.phase == PAUSED)
    steps = race.lane.steps
    race.lanes.resume([race.name])
    race.until(lambda: race.lane.steps > steps, "it goes on")
    assert 4 * 200 < race.lane.steady.examples_per_s < 4 * 500
    assert "pause" in race.lane.discarded and "warm-up" in race.lane.discarded


def test_a_turn_ends_and_is_marked_at_its_start(watch, script):
    race = watch(script(LOOP + "train(60)"))
    race.until(lambda: race.lane.phase == RACING, "racing")
    race.lanes.pause([race.name])
    race.until_event(PhaseEntered, lambda event: event.phase == PAUSED)
    race.lanes.send(race.name, RunSlice(round=1, seconds=0.5))
    race.until_event(SliceEnded, lambda event: event.round == 1)
    mine = [window for window in race.of(Window) if window.round == 1]
    assert mine[0].marks == ("slice start",)
    assert 0.2e9 < sum(window.span_ns for window in mine if not window.marks) < 0.6e9


def test_a_turn_without_a_step_is_given_back(watch, script):
    race = watch(script(LOOP + "train(2)\ntime.sleep(60)"))
    race.until(lambda: race.lane.phase == RACING, "racing")
    wait_for(lambda: time.monotonic_ns() - race.lane.points[-1].at_ns > 1e9, what="no more steps")
    race.lanes.send(race.name, RunSlice(round=7, seconds=0.2))
    assert race.until_event(SliceEnded).round == 7


def test_stop_is_a_ctrl_c(watch, script):
    text = LOOP + "try:\n    train(60)\nexcept KeyboardInterrupt:\n    print('saved')\n    sys.exit(4)"
    race = watch(script(text))
    race.until(lambda: race.lane.phase == RACING, "racing")
    race.lanes.stop()
    assert output(race).splitlines()[-1] == "saved"
    assert (race.lane.ended.exit_code, race.lane.phase) == (4, DONE)


def test_it_tells_where_it_stands_and_its_signals_stay_its_own(watch, script):
    hangs = """
import signal
before = signal.getsignal(signal.SIGUSR1)
def waits_for_ever():
    print(before == signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL, flush=True)
    time.sleep(600)
train(1)
waits_for_ever()
"""
    race = watch("/bin/sh", "-c", f"{sys.executable} {script(LOOP + hangs)}; exit 1")
    race.until_event(LanePrinted)
    race.lanes.ask_stack(race.name)
    lines = race.until_event(StackReported).lines
    assert "[MainThread] (most recent call first):" in lines[0]
    assert lines[1].endswith("in waits_for_ever")
    assert not any("tfmon-" in line for line in lines)
    assert race.of(LanePrinted)[-1].lines == ("True",)


def test_its_own_knobs_follow_the_keys(watch, script):
    knobs = """
while True:
    size = report.knob("size", 8, choices=(8, 16))
    rate = report.knob("rate", 0.5)
    time.sleep(0.002)
    with report.step(examples=size) as step:
        step.loss = rate
"""
    race = watch(script(LOOP + knobs), rate=0.25)
    race.until(lambda: race.lane.steady.windows >= 1, "racing")
    offered = {event.knob: event for event in race.of(KnobOffered)}
    assert (offered["size"].value, offered["size"].choices) == (8, (8, 16))
    assert (offered["rate"].value, offered["rate"].default) == (0.25, 0.5)
    assert race.lane.last_loss == 0.25
    race.lanes.set_knob(race.name, "size", 16)
    applied = race.until_event(KnobApplied)
    assert (applied.knob, applied.value) == ("size", 16)
    race.until(lambda: race.of(Window)[-1].examples == 16 * race.of(Window)[-1].steps, "batches of 16")
    race.lanes.set_knob(race.name, "rate", -1.0)
    assert "rate takes a number from 0" in race.until_event(KnobRefused).reason


def test_a_knob_that_the_script_does_not_have_ends_it_with_a_word(watch, script):
    race = watch(script(LOOP + "train(60)"), size=3)
    output(race)
    assert race.lane.trouble.message == "size was asked for, and the script has no such knob"


# ------------------------------------------------------------ report, without tfmon


def test_without_tfmon_report_does_nothing_and_loads_nothing():
    code = """
import sys
before = set(sys.modules)
from tfmon import report
with report.step(examples=3) as step:
    step.loss = 1.0
with report.input():
    pass
report.step(examples=3, loss=2.0)
assert list(report.input([1, 2])) == [1, 2]
assert report.knob("size", 8, choices=(8, 16)) == 8
own = {name for name in set(sys.modules) - before if name.partition(".")[0] not in sys.stdlib_module_names}
print(sorted(own))
"""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TFMON")}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "['tfmon', 'tfmon.report']"


def test_pytorch_reports_as_well(watch, script):
    pytest.importorskip("torch")
    text = """
import torch
from tfmon import report
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(20_000):
    x = torch.rand(16, 8)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    report.step(examples=len(x), loss=loss)
"""
    race = watch(script(text))
    output(race)
    assert race.lane.phase == DONE and race.lane.last_loss < race.lane.first_loss
