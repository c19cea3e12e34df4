"""Who runs a process, from a made /proc."""

import os

import pytest

from tfmon.model.gpu_samples import ProcessName
from tfmon.probes.process_names import KEPT_S, LONGEST, ProcessNames, one_line


@pytest.fixture
def proc(put):
    """Return a function that makes a process."""

    def make(pid: int, command: str, parent: int = 1, name: str = "python") -> None:
        put(f"proc/{pid}/cmdline", command)
        put(f"proc/{pid}/stat", f"{pid} ({name}) S {parent} 1 1 0\n")

    return make


@pytest.fixture
def now():
    return [0.0]


@pytest.fixture
def names(tmp_path, now):
    users = {os.getuid(): "ana"}
    return ProcessNames(tmp_path, own_pid=50, clock_s=lambda: now[0], user_of=lambda uid: users[uid])


def test_user_and_command_and_whether_it_is_ours(proc, names):
    proc(50, "tfmon\0", parent=9)
    proc(60, "python\0-m\0child\0", parent=50)
    proc(61, "python\0worker.py\0", parent=60)
    proc(70, "python\0train.py\0--epochs\x003\0")
    found = names.of([61, 70, 99])
    assert found == {
        61: ProcessName("ana", "python worker.py", ours=True),
        70: ProcessName("ana", "python train.py --epochs 3"),
    }


def test_a_command_line_of_others_cannot_steer_the_terminal(proc, names):
    proc(70, "python\0\x1b]0;owned\x07\x1b[2J\x1b[31mtrain\n\r\x9b5m\u202e.py\0" + "x" * 9_000)
    command = names.of([70])[70].command
    assert command.startswith("python train .py xxx") and len(command) == LONGEST
    assert command.isprintable()
    assert one_line("\x1b[2Ja\tb\x00c", 80) == "a bc"


def test_a_name_is_read_again_after_a_while_and_forgotten_with_its_process(proc, names, now, tmp_path):
    proc(70, "")
    assert names.of([70])[70].command == "python"  # it is starting
    proc(70, "bash\0run.sh\0")
    assert names.of([70])[70].command == "bash run.sh"
    proc(70, "python\0train.py\0")
    assert names.of([70])[70].command == "bash run.sh"
    now[0] += KEPT_S + 1
    assert names.of([70])[70].command == "python train.py"
    for file in ("cmdline", "stat"):
        (tmp_path / "proc/70" / file).unlink()
    (tmp_path / "proc/70").rmdir()
    assert names.of([70]) == {}
