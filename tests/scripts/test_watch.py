"""`tfmon watch` without a screen: output, exit code and environment equal the plain command's."""

import hashlib
import json
import os
import shlex
import subprocess
import sys
from typing import IO

import pytest
from support.waiting import HANGS_S

pytestmark = pytest.mark.process

WATCH = (sys.executable, "-m", "tfmon", "watch", "--headless", "--no-record", "--", sys.executable)
STEPS = "from tfmon import report\nfor _ in range(20):\n    report.step(examples=4)\n"


def watch(
    text: str,
    *options: str,
    command: tuple[str, ...] = ("race", "--lane", "cpu"),
    stdin: int | IO[bytes] | bytes | None = None,
) -> subprocess.CompletedProcess[bytes]:
    words = [sys.executable, "-m", "tfmon", *command, "--headless", "--no-record", *options]
    script = ["-"] if text == "-" else ["-c", text]
    sent = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
    return subprocess.run([*words, "--", sys.executable, *script], capture_output=True, timeout=HANGS_S, **sent)


def test_the_exit_code_of_a_signal_is_the_commands():
    assert watch("import os\nos.kill(os.getpid(), 15)").returncode == 128 + 15


@pytest.mark.parametrize(
    ("text", "knob", "hint"),
    [(STEPS.replace("20", "10**9"), "rate", ""), ("print('done')", "batchsize", "did you mean batch_size?")],
)
def test_a_knob_that_a_script_does_not_have_fails_its_lane(text, knob, hint):
    done = watch(text, command=("race", "--lane", f"cpu,{knob}=2"))
    assert done.returncode == 1
    assert f"{knob} was requested, and the script has no such knob\n{hint}" in done.stdout.decode()
    assert not hint or done.stdout.startswith(b"done\n"), "it is told at the end"


def test_output_is_passed_on_byte_for_byte_and_the_result_follows():
    text = "import sys\nfor n in range(20_000): sys.stdout.buffer.write(b'\\xff\\x1b[1m %d\\r\\n' % n)\n"
    plain = subprocess.run([sys.executable, "-c", text], capture_output=True, check=True).stdout
    assert len(plain) > 200_000
    printed = watch(text + STEPS)
    assert printed.returncode == 0
    assert printed.stdout.startswith(plain) and len(printed.stdout) > len(plain)
    as_json = watch(text, "--json")
    assert as_json.stderr == plain
    assert json.loads(as_json.stdout)["lanes"][0]["steps"] is None, "no step was seen"


def test_standard_error_stays_apart_from_the_output_and_in_its_order_where_both_go_to_one_file(tmp_path):
    text = "import sys\nfor n in range(99): print('out', n); print('err', n, file=sys.stderr)\nsys.exit('no data')"
    plain = subprocess.run([sys.executable, "-c", text], capture_output=True)
    watched = watch(text)
    assert watched.returncode == plain.returncode == 1
    assert watched.stdout.startswith(plain.stdout)
    assert watched.stderr == plain.stderr
    assert b"it last printed: no data" in watched.stdout
    with (tmp_path / "both").open("wb") as both:
        subprocess.run([*WATCH, "-uc", text], stdout=both, stderr=both, timeout=HANGS_S)
    ordered = "".join(f"out {n}\nerr {n}\n" for n in range(99)).encode()
    assert (tmp_path / "both").read_bytes().startswith(ordered)


@pytest.mark.parametrize(("how", "lanes"), [("pipe", 2), ("file", 1)])
def test_the_script_gets_standard_input_and_each_of_several_lanes_all_of_it(tmp_path, how, lanes):
    reads = "import hashlib, sys; sys.exit(hashlib.md5(sys.stdin.buffer.read()).hexdigest())"
    sent = os.urandom(300_000)
    (tmp_path / "sent").write_bytes(b"skipped" + sent)
    command = ("race", *["--lane", "cpu"] * lanes)
    with (tmp_path / "sent").open("rb", 0) as file:
        file.read(7)
        done = watch(reads, command=command, stdin=file if how == "file" else sent)
    digest = hashlib.md5(sent).hexdigest().encode()
    assert done.stdout.count(b"  " + digest + b"\n") == lanes


def test_python_trains_a_script_that_is_piped_to_it():
    done = watch("-", command=("watch",), stdin=STEPS.encode() + b"print(__name__)\n")
    assert done.returncode == 0
    assert done.stdout.startswith(b"__main__\n") and b"20 steps" in done.stdout


def test_input_that_never_ends_is_read_no_further_than_the_script_reads_it():
    """And `yes` gets its SIGPIPE: nothing else keeps the pipe open."""
    text = "import sys; print(sys.stdin.readline(), end='')"
    done = subprocess.run(
        ["/bin/sh", "-c", f"yes | {shlex.join([*WATCH, '-c', text])}"], capture_output=True, timeout=HANGS_S
    )
    assert done.stdout.startswith(b"y\ncpu: ")


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["env", "-i", sys.executable, "-c", "pass"], "`env -i` takes away the variables"),
        ([sys.executable, "-I", "-c", "pass"], " -I` ignores PYTHONPATH"),
        (["/bin/echo"], "none of its Python processes loaded tfmon"),
        ([sys.executable, "-c", "pass"], "report.step"),
    ],
)
def test_where_no_step_is_seen_the_true_reason_is_told(command, reason):
    words = [sys.executable, "-m", "tfmon", "watch", "--json", "--no-record", "--", *command]
    told = subprocess.run(words, capture_output=True, text=True, timeout=HANGS_S)
    assert told.returncode == 0
    assert "no training step was seen" in told.stdout and reason in told.stdout
    missing = json.loads(told.stdout)["lanes"][0]["missing"]
    assert reason in missing["step"] and missing["step"] == missing["steps"] == missing["examples"]


def test_output_that_nobody_reads_any_more_does_not_end_the_command(tmp_path):
    text = f"for n in range(100_000): print(n)\nopen({str(tmp_path / 'done')!r}, 'w').close()"
    with subprocess.Popen([*WATCH, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as watched:
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
