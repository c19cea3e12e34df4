"""Notices about a race: their occasions, their frequency, and the input of a user's command."""

import json
import queue
import subprocess
import sys
from dataclasses import replace

import pytest
from support.processes import run_python
from support.ui import racing_demo, sample_hosts

from tfmon.api import notify
from tfmon.api.notify import Notice, happening, notices, run_command, sequence
from tfmon.model.gpu_samples import GpuFault
from tfmon.version import __version__

NOTICE = Notice("stall", "gpu:0: no step; for 9 s", ("gpu:0",), "train.py", "/runs/1.jsonl.gz")


def test_a_lane_that_fails_is_told_once_and_the_end_of_the_race_always():
    demo, sent = racing_demo(), queue.Queue()
    with notices(demo.session, sent.put, print):
        demo.fail("gpu:0", "no memory is left")
        told = sent.get(timeout=60)
        assert (told.kind, told.lanes, told.text) == ("failed", ("gpu:0",), "gpu:0: no memory is left")
        sample_hosts(demo)
        demo.fail("cpu", "it is broken")  # within the minute
    assert sorted(sent.get_nowait().kind for _ in range(sent.qsize())) == ["ended", "failed"]


def test_a_gpu_that_reports_a_fault_is_told():
    demo = racing_demo()
    (sample,) = demo.session.snapshot().hosts[""].gpus
    assert not list(happening(demo.session.snapshot()))
    demo.session.accept(replace(sample, faults=(GpuFault(5, 79, "it fell off the bus (XID 79)"),)))
    told = ("gpu", "GPU-1 5", "", "NVIDIA H200: it fell off the bus (XID 79)")
    assert list(happening(demo.session.snapshot())) == [told]


@pytest.mark.process
class TestCommand:
    def test_a_command_gets_the_facts_as_json_and_in_its_environment(self, tmp_path, monkeypatch):
        run_command(
            f'cat > "{tmp_path}/facts"; echo "$TFMON_NOTIFY_KIND $TFMON_NOTIFY_LANES" > "{tmp_path}/more"', NOTICE
        )
        facts = json.loads((tmp_path / "facts").read_text())
        assert facts.pop("time").endswith("+00:00")
        assert facts == {
            "tfmon": __version__, "kind": "stall", "text": NOTICE.text, "lanes": ["gpu:0"], "scenario": "train.py",
            "recording": "/runs/1.jsonl.gz",
        }  # fmt: skip
        assert (tmp_path / "more").read_text() == "stall gpu:0\n"

    def test_a_lane_that_ends_is_told_by_the_command_of_the_user(self, command, tmp_path):
        script = tmp_path / "train.py"
        script.write_text(
            "from tfmon import report\nfor _ in range(9): report.step(examples=4)\nraise SystemExit(3)\n"
        )
        words = ("--no-record", "--notify", f"cat >> {tmp_path}/facts", "--", sys.executable, script)
        done = command("watch", *words)
        facts = [json.loads(line) for line in (tmp_path / "facts").read_text().splitlines()]
        assert (done.code, [fact["kind"] for fact in facts]) == (3, ["failed", "ended"]), done.err
        assert "exited with code 3" in facts[0]["text"] and facts[1]["scenario"] == "train.py"

    @pytest.mark.slow
    def test_a_lane_that_is_slower_than_in_a_recorded_race_is_told(self, tmp_path):
        script, before = tmp_path / "train.py", tmp_path / "before.jsonl.gz"
        script.write_text(PACED)

        def watch(*words: object, **paced: str) -> subprocess.CompletedProcess[str]:
            return run_python("-m", "tfmon", "watch", "--headless", *words, "--", sys.executable, script, **paced)

        assert watch("--record", before, PAUSE="0.002", STEPS="3000").returncode == 0
        told = ("--notify", f"cat >> {tmp_path}/facts", "--no-record", "--baseline", before)
        assert watch(*told, PAUSE="0.01", STEPS="900").returncode == 0
        facts = [json.loads(line) for line in (tmp_path / "facts").read_text().splitlines()]
        (regression,) = [fact["text"] for fact in facts if fact["kind"] == "regression"]
        assert "% slower (95 % CI" in regression
        (tmp_path / "facts").unlink()
        assert watch(*told, "--slower-than", "99%", PAUSE="0.01", STEPS="300").returncode == 0
        assert '"kind": "regression"' not in (tmp_path / "facts").read_text()
        done = run_python("-m", "tfmon", "race", "small-dense", "--notify", "true", "--baseline", before)
        said = "tfmon: the baseline is of train.py, and this is small-dense"
        assert (done.returncode, done.stderr.splitlines()[0]) == (2, said)

    def test_a_command_that_fails_or_hangs_is_told_and_what_it_started_is_ended(self, monkeypatch, tmp_path):
        demo = racing_demo()
        told, fails = queue.Queue(), "echo no such host >&2; exit 6"
        with notices(demo.session, lambda notice: run_command(fails, notice), told.put):
            demo.fail("cpu")
            assert told.get(timeout=60) == f"--notify: '{fails}' ended with 6: no such host"
        assert told.empty(), "the end of the race is told in vain, too, but once is enough"
        monkeypatch.setattr(notify, "PATIENCE_S", 0.2)
        with pytest.raises(OSError, match="took longer than 0 s, and was killed"):
            run_command(f"(sleep 600; touch {tmp_path}/late) & sleep 600", NOTICE)


PACED = """
import os, time
from tfmon import report
for _ in range(int(os.environ["STEPS"])):
    time.sleep(float(os.environ["PAUSE"]))
    report.step(examples=4)
"""


@pytest.mark.parametrize(
    ("how", "tmux", "written"),
    [
        ("bell", "", "\a"),
        ("osc9", "", "\x1b]9;tfmon: gpu:0: no step; for 9 s\a"),
        ("osc777", "", "\x1b]777;notify;tfmon;gpu:0: no step, for 9 s\a"),
        ("osc9", "socket,1,0", "\x1bPtmux;\x1b\x1b]9;tfmon: gpu:0: no step; for 9 s\a\x1b\\"),
    ],
)
def test_a_terminal_rings_or_shows_it(how, tmux, written, monkeypatch):
    monkeypatch.setenv("TMUX", tmux)
    assert sequence(how, NOTICE) == written
