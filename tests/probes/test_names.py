"""Who runs a process, from a made /proc."""

import functools

import pytest

from tfmon.model.gpu_samples import ProcessName
from tfmon.probes.processes import LONGEST_COMMAND, one_line, read_names


@pytest.fixture
def proc(put):

    def make(pid: int, command: str, parent: int = 1, name: str = "python") -> None:
        put(f"proc/{pid}/cmdline", command)
        put(f"proc/{pid}/stat", f"{pid} ({name}) S {parent} 1 1 0\n")

    return make


@pytest.fixture
def names(tmp_path, monkeypatch):
    monkeypatch.setattr("os.getpid", lambda: 50)
    monkeypatch.setattr("tfmon.probes.processes.user_of", lambda uid: "ana")
    return functools.partial(read_names, root=tmp_path)


def test_user_and_command_and_whether_it_is_ours(proc, names):
    proc(50, "tfmon\0", parent=9)
    proc(60, "python\0-m\0child\0", parent=50)
    proc(61, "python\0worker.py\0", parent=60)
    proc(70, "python\0train.py\0--epochs\x003\0")
    proc(80, "")  # a process that is starting
    found = names([61, 70, 80, 99])
    assert found == {
        61: ProcessName("ana", "python worker.py", ours=True),
        70: ProcessName("ana", "python train.py --epochs 3"),
        80: ProcessName("ana", "python"),
    }


def test_a_command_line_of_others_cannot_steer_the_terminal(proc, names):
    proc(70, "python\0\x1b]0;owned\x07\x1b[2J\x1b[31mtrain\n\r\x9b5m\u202e.py\0" + "x" * 9_000)
    command = names([70])[70].command
    assert command.startswith("python train .py xxx") and len(command) == LONGEST_COMMAND
    assert command.isprintable()
    assert one_line("\x1b[2Ja\tb\x00c", 80) == "a bc"
