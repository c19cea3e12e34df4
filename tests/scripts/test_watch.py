"""`tfmon watch` without a screen: output, exit code and environment are those of the command without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from support.waiting import HANGS_S

pytestmark = pytest.mark.process

STEPS = "from tfmon import report\nfor _ in range(20):\n    report.step(examples=4)\n"


def watch(
    text: str, *options: str, command: tuple[str, ...] = ("race", "--lane", "cpu")
) -> subprocess.CompletedProcess[bytes]:
    words = [sys.executable, "-m", "tfmon", *command, "--headless", "--no-record", *options]
    return subprocess.run([*words, "--", sys.executable, "-c", text], capture_output=True, timeout=HANGS_S)


@pytest.mark.parametrize(
    ("command", "ending", "code"),
    [
        (("watch",), "", 0),
        (("race", "--lane", "cpu"), "sys.exit(7)", 7),
        (("watch",), "raise ValueError('no data')", 1),
        (("race", "--lane", "cpu"), "os.kill(os.getpid(), 15)", 128 + 15),
        (("watch",), "os._exit(9)", 9),
    ],
)
def test_the_exit_code_is_the_commands(command, ending, code):
    assert watch(f"import os, sys\n{ending}", command=command).returncode == code


def test_a_script_without_the_knob_that_its_lane_names_has_failed_and_was_not_interrupted():
    done = watch(STEPS.replace("20", "10**9"), command=("race", "--lane", "cpu,rate=2"))
    assert done.returncode == 1
    assert b"rate was requested, and the script has no such knob" in done.stdout


def test_a_misspelt_knob_of_a_script_without_steps_is_told_at_its_end():
    done = watch("print('done')", command=("race", "--lane", "cpu,batchsize=17"))
    assert done.returncode == 1
    told = b"batchsize was requested, and the script has no such knob\ndid you mean batch_size?"
    assert done.stdout.startswith(b"done\n") and told in done.stdout


@pytest.mark.parametrize("steps", ["", STEPS])
def test_output_is_passed_on_byte_for_byte_and_the_result_follows(steps):
    text = "import sys\nfor n in range(20_000): sys.stdout.buffer.write(b'\\xff\\x1b[1m %d\\r\\n' % n)\n"
    plain = subprocess.run([sys.executable, "-c", text], capture_output=True, check=True).stdout
    assert len(plain) > 200_000
    printed = watch(text + steps)
    assert printed.returncode == 0
    assert printed.stdout.startswith(plain) and len(printed.stdout) > len(plain)
    as_json = watch(text + steps, "--json")
    assert as_json.stderr == plain
    assert bool(json.loads(as_json.stdout)["lanes"][0]["steps"]) == bool(steps), "null where no step was seen"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["env", "-i", sys.executable, "-c", "pass"], "`env -i` takes away the variables"),
        ([sys.executable, "-I", "-c", "pass"], " -I` ignores PYTHONPATH"),
        ([sys.executable, "-"], "reads the script from standard input"),
        (["/bin/echo"], "no Python of it has loaded tfmon"),
        ([sys.executable, "-c", "pass"], "report.step"),
    ],
)
def test_where_no_step_is_seen_the_true_reason_is_told(command, reason):
    for how in ("--headless", "--json") if reason == "report.step" else ("--json",):
        words = [sys.executable, "-m", "tfmon", "watch", how, "--no-record", "--", *command]
        told = subprocess.run(words, capture_output=True, text=True, timeout=HANGS_S)
        assert told.returncode == 0
        assert "no training step was seen" in told.stdout and reason in told.stdout
    missing = json.loads(told.stdout)["lanes"][0]["missing"]
    assert reason in missing["step"] and missing["step"] == missing["steps"] == missing["examples"]


def test_output_that_nobody_reads_any_more_does_not_end_the_command(tmp_path):
    text = f"for n in range(100_000): print(n)\nopen({str(tmp_path / 'done')!r}, 'w').close()"
    words = [sys.executable, "-m", "tfmon", "watch", "--headless", "--no-record", "--", sys.executable, "-c", text]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as watched:
        watched.stdout.close()
        watched.wait(HANGS_S)
    assert (tmp_path / "done").exists()


def test_the_environment_is_that_of_the_command_alone(monkeypatch):
    for name in [name for name in os.environ if name.startswith("TFMON_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    text = "import json, os; print(json.dumps(dict(os.environ)))"
    plain = json.loads(subprocess.run([sys.executable, "-c", text], capture_output=True, check=True).stdout)
    watched = json.loads(watch(text, command=("watch",)).stdout.splitlines()[0])
    changed = {name for name in plain | watched if plain.get(name) != watched.get(name)}
    assert {name for name in changed if not name.startswith("TFMON_")} == {"PYTHONPATH"}
    assert "CUDA_VISIBLE_DEVICES" not in changed
