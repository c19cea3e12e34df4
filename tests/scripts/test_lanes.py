"""A user's process as a lane: which process is measured, its requests, and its unchanged environment."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.results import to_json
from support.waiting import HANGS_S

from tfmon.analysis.analysis import analyse
from tfmon.hooks.meter import NO_TENSORFLOW
from tfmon.hooks.script_lane import OTHER_THREADS
from tfmon.model import lane_events
from tfmon.model.lane_events import PAUSED, RACING, READY, KnobOffered, PhaseEntered, SliceEnded, Window
from tfmon.model.lane_state import DONE, FAILED
from tfmon.model.race import TURNS
from tfmon.model.requests import RunSlice, TakeProfile

pytestmark = pytest.mark.process

LOOP = """
import os, sys, time
from tfmon import report
def train(steps):
    for step in range(steps):
        time.sleep(0.002)
        report.step(examples=4, loss=1 / (step + 1))
    return steps
"""
FOR_EVER = LOOP + "train(10**9)"
WARM = 400
"""Steps after which a lane is ready, and has trained in the race: more than 0.5 s of them."""


def output(race) -> str:
    race.until(lambda: race.lane.end.event is not None, "the end")
    return "\n".join(race.lane.end.event.output_tail)


def test_arguments_path_and_modules_are_those_of_a_run_without_tfmon(watch, script, monkeypatch, tmp_path):
    own = tmp_path / "more" / "sitecustomize.py"
    own.parent.mkdir()
    own.write_text("import sys; sys.own = __file__\n")
    monkeypatch.setenv("PYTHONPATH", str(own.parent))
    facts = "sys.argv, sys.path, sorted(sys.modules), os.getcwd(), sys.own, sys.modules['sitecustomize'].__file__"
    path = script(f"import os, sys, json; print(json.dumps([{facts}]), flush=True)")
    without = subprocess.run([sys.executable, path, "--a", "b c"], capture_output=True, text=True, check=True)
    found = json.loads(output(watch(path, "--a", "b c")))
    assert found == json.loads(without.stdout) and found[-2:] == [str(own)] * 2


SHADOW = """
import sys
if __name__ == "__main__":
    import jax, os, time
    if "TFMON_PIPES" in os.environ:
        from tfmon import report
    import statistics, select
    if "TFMON_PIPES" in os.environ:
        for step in range(400):
            time.sleep(0.002)
            report.step(examples=4)
else:
    import os
    with open(os.environ["RAN"], "a") as file:
        file.write(__name__ + "\\n")
    spec = sys.modules["_frozen_importlib_external"].PathFinder.find_spec(__name__, LIBRARY)
    if spec is None:
        raise ModuleNotFoundError(__name__)
    sys.modules[__name__] = sys.modules["_frozen_importlib"].module_from_spec(spec)
    spec.loader.exec_module(sys.modules[__name__])
"""
"""A script named like a module of the standard library; imported, it writes its name down and becomes that."""
STARTS = (
    "{python} statistics.py",
    "{python} -m statistics",
    "{python} -c \"import runpy; runpy.run_path('statistics.py', run_name='__main__')\"",
    "{python} -c 'import torch' 2>$RAN",
)


def test_no_module_of_the_script_with_a_name_of_the_library_is_run_by_tfmon(watch, tmp_path, monkeypatch):
    home = str(Path(os.__file__).parent)
    for name in sys.stdlib_module_names:
        (tmp_path / f"{name}.py").write_text(SHADOW.replace("LIBRARY", repr([home, f"{home}/lib-dynload"])))
    (tmp_path / "jax.py").touch()  # tfmon loads its hooks then
    (tmp_path / "torch.py").write_text("raise ValueError('broken')\n")
    monkeypatch.chdir(tmp_path)
    line = "; ".join(f"export RAN={{ran}}.{number}; {start}" for number, start in enumerate(STARTS))
    words = {ran: line.format(ran=ran, python=sys.executable) for ran in ("plain", "watched")}
    subprocess.run(["/bin/sh", "-c", words["plain"]], timeout=HANGS_S)
    race = watch("/bin/sh", "-c", words["watched"], environment={"TFMON_LANES": "2"})
    output(race)
    assert race.lane.totals.steps == 3 * 400
    for number in range(len(STARTS)):
        plain, watched = (Path(f"{ran}.{number}") for ran in ("plain", "watched"))
        assert watched.read_text() == plain.read_text()


@pytest.mark.parametrize(
    ("text", "error", "hint"),
    [
        ("raise ValueError('no data')", "ValueError: no data", ""),
        ("input()", "EOFError: EOF when reading a line", "standard input has ended"),
        ("get_ipython().magic('x')", "NameError: name 'get_ipython' is not defined", "name the notebook itself"),
    ],
    ids=["exception", "input", "export of a notebook"],
)
def test_a_failed_script_is_reported_in_its_own_words(watch, script, text, error, hint):
    race = watch(script(text))
    output(race)
    assert (race.lane.phase, race.lane.end.event.exit_code) == (FAILED, 1)
    assert race.lane.trouble.message == f"the script exited with code 1: {error}"
    assert hint in race.lane.trouble.hint and bool(hint) is bool(race.lane.trouble.hint)


def test_steps_are_seen_below_a_launcher_that_closes_descriptors_until_the_script_leaves_at_once(watch, script):
    command = [sys.executable, script(LOOP + f"train({WARM})\nos._exit(7)")]
    race = watch("-c", f"import subprocess, sys; sys.exit(subprocess.call({command}))")
    output(race)
    assert race.lane.end.event.exit_code == 7
    assert (race.lane.totals.steps, race.lane.totals.examples) == (WARM, 4 * WARM), "the last window, too"
    assert race.lane.totals.losses.first == 1.0, "that of the first step"


def test_a_last_window_that_is_lost_is_said(watch, script):
    race = watch(script(LOOP + f"train({WARM})\nos.kill(os.getpid(), 9)"))
    output(race)
    assert "is not counted" in race.lane.script.not_measured["end"]


def test_of_processes_that_train_at_once_the_first_is_the_lane_and_the_others_are_told(watch, script):
    forks = f"""
if "other" in sys.argv:
    train(30)
    sys.exit()
train(100)
pid = os.fork()
train({WARM} if pid else 50)
if not pid:
    os.environ.update(RANK="1", WORLD_SIZE="2")
    os.execv(sys.executable, [sys.executable, *sys.argv, "other"])
os.wait()
print(os.getpid())
"""
    race = watch(script(LOOP + forks))
    pid = int(output(race).splitlines()[-1])
    assert [event.pid for event in race.of(lane_events.Hello)] == [pid]
    assert race.lane.totals.steps == 100 + WARM
    reason = race.lane.script.not_measured["processes"]
    assert re.search(rf"is counted, {pid}; not: process (\d+).*, process \1.* \(rank 1 of 2\)$", reason)
    (lane,) = to_json(analyse(race.session.snapshot()))["lanes"]
    assert lane["missing"]["other_processes"] == reason


def test_threads_that_train_in_turn_are_counted_and_one_beside_another_is_told(watch, script):
    threads = """
import threading
def run(*works):
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
for _ in range(3):
    run(lambda: train(200))
begun, over = threading.Event(), threading.Event()
def first():
    train(100)
    begun.set()
    over.wait()
def other():
    begun.wait()
    train(50)
    over.set()
run(first, other)
"""
    race = watch(script(LOOP + threads))
    output(race)
    assert race.lane.totals.steps == 3 * 200 + 100
    told = race.lane.script.not_measured["threads"]
    assert told.startswith(OTHER_THREADS) and "train.py:7" in told


def test_a_script_that_closes_the_channel_is_told_with_its_steps_and_trains_on(watch, script, tmp_path):
    closes = """
train(400)
os.closerange(3, 256)
own = [os.open(f"{sys.argv[1]}.{number}", os.O_CREAT | os.O_WRONLY) for number in range(20)]
while not os.path.exists(sys.argv[1]):
    train(20)
assert not any(os.fstat(file).st_size for file in own)
print("trained on")
"""
    race = watch(script(LOOP + closes), str(tmp_path / "told"))
    race.until(lambda: "steps" in race.lane.script.not_measured, "the reason")
    (tmp_path / "told").touch()
    steps = race.lane.totals.steps  # without the steps of an unsent window
    assert 100 < steps <= 400
    assert race.lane.script.not_measured["steps"] == f"the script closed tfmon's channel after {steps} steps"
    assert output(race).splitlines()[-1] == "trained on"
    assert (race.lane.end.event.exit_code, race.lane.trouble) == (0, None)


@pytest.mark.parametrize("name", ["tfmon.py", "tfmon/__init__.py"])
def test_a_module_named_tfmon_is_the_scripts_and_the_lane_says_so(watch, script, tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("OWN = 5\n")
    (tmp_path / "jax.py").touch()  # any library that is watched, and this one takes no time to load
    race = watch(script("import jax\nfrom tfmon import OWN\nprint('own', OWN)\n"))
    assert output(race).splitlines()[-1] == "own 5"
    assert race.lane.end.event.exit_code == 0
    reason = "the script has a module named tfmon of its own, so it is not watched"
    assert race.lane.script.not_measured["steps"] == reason


def test_hooks_that_cannot_be_loaded_are_reported(watch, script, tmp_path):
    (tmp_path / "jax.py").touch()
    broken = 'import sys\nsys.modules["tfmon.hooks.install"] = None\nimport jax\nprint("trained")\n'
    race = watch(script(broken))
    assert output(race).splitlines()[-1] == "trained"
    assert race.lane.end.event.exit_code == 0
    reason = "tfmon's hooks could not be loaded: ModuleNotFoundError: "
    assert race.lane.script.not_measured["steps"].startswith(reason)


def test_it_gets_ready_races_pauses_takes_slices_and_is_stopped_by_somebody_else(watch, script):
    race = watch(script(FOR_EVER))
    race.until_event(PhaseEntered, lambda event: event.phase == RACING)
    assert race.phases.index(READY) < race.phases.index(RACING)
    race.until(lambda: race.lane.steady.windows >= 2, "steady windows")
    race.lanes.pause([race.name])
    race.until_event(PhaseEntered, lambda event: event.phase == PAUSED)
    steps = race.lane.totals.steps
    race.lanes.resume([race.name])
    race.until(lambda: race.lane.totals.steps > steps, "it goes on")
    assert 0 < race.lane.steady.examples_per_s <= 4 * 500, "a step takes 2 ms or longer"
    assert {"pause", "warm-up"} <= set(race.lane.measurements.discarded)

    race.lanes.pause([race.name])
    race.until(lambda: race.phases.count(PAUSED) == 2, "a second pause")
    for number in range(1, 10):  # in one of them the machine may stand still
        race.send(RunSlice(round=number, seconds=0.5))
        race.until_event(SliceEnded, lambda event, number=number: event.round == number)
        windows = [window for window in race.of(Window) if window.round == number]
        if any(not window.marks for window in windows):
            break
    first, *rest = windows
    assert first.marks == ("after a switch",)
    assert any(not window.marks for window in rest)

    race.lanes.resume([race.name])
    pid = race.lane.process.pid
    os.kill(pid, signal.SIGSTOP)
    race.until(lambda: f"kill -CONT {pid}" in race.lane.script.not_measured.get("stopped", ""), "stopped")
    os.kill(pid, signal.SIGCONT)
    race.until(lambda: race.lane.script.not_measured["stopped"] == "", "it goes on")


SAVES = """
try:
    train(10**9)
except KeyboardInterrupt:
    train(2 * {warm})  # longer than the 2.6 s that a lane without a command has
    print("saved")
    sys.exit(4)
"""


def test_its_end_is_a_ctrl_c_with_time_to_save(watch, script):
    race = watch(script(LOOP + SAVES.format(warm=WARM)), mode=TURNS)
    race.until(lambda: race.lane.phase == RACING, "racing")
    race.lanes.pause([race.name])
    race.until(lambda: race.lane.phase == PAUSED, "it waits, and must not any more")
    race.lanes.stop()
    assert output(race).splitlines()[-1] == "saved"
    assert (race.lane.end.event.exit_code, race.lane.phase, race.lane.trouble) == (4, DONE, None)


@pytest.mark.parametrize("hurried", [False, True])
def test_one_that_resists_is_killed_after_its_grace_or_at_once_and_called_so(watch, script, hurried):
    race = watch(
        script("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + FOR_EVER),
        grace_s=600.0 if hurried else 0.5,
    )
    race.until(lambda: race.lane.phase == RACING, "racing")
    race.lanes.kill(race.name)
    race.until(lambda: race.lane.end.requested is not None, "it was asked to end")
    if hurried:
        race.lanes.kill(race.name)
    output(race)
    assert race.lane.phase == DONE
    assert race.lane.trouble.message.endswith("s of Ctrl+C: killed by SIGTERM")
    assert bool(race.lane.trouble.hint) is not hurried


def test_its_own_knobs_follow_the_keys(watch, script, tmp_path):
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
    assert race.lane.totals.losses.last == 0.25
    race.lanes.set_knob(race.name, "size", 16)
    applied = race.until_event(lane_events.KnobApplied)
    assert (applied.knob, applied.value) == ("size", 16)
    changed = race.until_event(Window, lambda window: window.step >= applied.step)
    assert "knob change" in changed.marks
    race.until(lambda: race.of(Window)[-1].examples == 16 * race.of(Window)[-1].steps, "batches of 16")
    race.lanes.set_knob(race.name, "rate", -1.0)
    assert "rate takes a number from 0" in race.until_event(lane_events.KnobRefused).reason
    race.lanes.profile(race.name, TakeProfile(folder=str(tmp_path), steps=6))
    assert race.until_event(lane_events.ProfileFailed).reason == NO_TENSORFLOW


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
