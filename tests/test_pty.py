"""The whole program in a pseudo-terminal: it starts, shows numbers, acts on keys, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

pytest.importorskip("pexpect")

from support.terminal import Terminal

LEAVES_WITHIN_S = 3.0
RESTORED = ("\x1b[?1049l", "\x1b[?25h")
"""The main screen is back, and the cursor with it."""


@pytest.fixture
def start() -> Iterator[Callable[..., Terminal]]:
    terminals: list[Terminal] = []

    def run(*arguments: str) -> Terminal:
        terminals.append(Terminal(*arguments))
        return terminals[-1]

    yield run
    for terminal in terminals:
        if not terminal.process.closed:
            with contextlib.suppress(OSError):
                terminal.process.close(force=True)


def gone(children: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(children, timeout=LEAVES_WITHIN_S)[1]


def quit_by_q(terminal: Terminal) -> None:
    terminal.process.send("q")


def quit_by_ctrl_c(terminal: Terminal) -> None:
    terminal.process.send("\x03")


def quit_by_sigterm(terminal: Terminal) -> None:
    terminal.process.kill(signal.SIGTERM)


@pytest.mark.parametrize(
    ("leave", "code"),
    [(quit_by_q, 0), (quit_by_ctrl_c, 0), (quit_by_sigterm, 130)],
    ids=["q", "ctrl-c", "sigterm"],
)
def test_leaving_while_tensorflow_loads_ends_the_children_and_restores_the_terminal(start, leave, code) -> None:
    terminal = start()
    terminal.wait_for(lambda display: "importing" in display)
    children = terminal.children()
    leave(terminal)
    assert gone(children)
    assert terminal.wait_for_exit() == code
    assert all(sequence in terminal.raw for sequence in RESTORED)


def test_a_closed_terminal_ends_the_program_and_its_children(start) -> None:
    terminal = start()
    terminal.wait_for(lambda display: "importing" in display)
    program = psutil.Process(terminal.process.pid)
    children = terminal.children()
    terminal.process.ptyproc.fileobj.close()
    assert gone(children)
    deadline = time.monotonic() + 5
    while program.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "tfmon outlives its terminal"
        time.sleep(0.02)


@pytest.mark.tf
def test_a_race_shows_numbers_and_takes_a_key_into_force(start) -> None:
    terminal = start("race", "small-dense", "--lane", "cpu", "--lane", "cpu,prefetch=auto")
    display = terminal.wait_for(lambda text: re.search(r"\d steps/s", text) and "95 % CI" in text)
    assert "examples/s" in display
    assert "batch 10" in display
    terminal.process.send("B")
    terminal.wait_for(lambda text: text.count("batch 16 ·") == 2 and "asked" not in text, timeout_s=40)
    children = terminal.children()
    for process in (psutil.Process(terminal.process.pid), *children):
        assert process.net_connections(kind="inet") == [], "TensorFlow opens no port either"
    terminal.process.send("q")
    assert gone(children)
    assert terminal.wait_for_exit() == 0
    table = terminal.raw.rsplit(RESTORED[0], 1)[1]
    assert "examples/s" in table and "windows left out: knob change" in table


def test_a_gpu_that_is_not_there_starts_nothing(start) -> None:
    terminal = start("race", "small-dense", "--lane", "gpu:7")
    assert terminal.wait_for_exit() == 3
    assert "gpu:7 is not there" in terminal.raw
    assert RESTORED[0] not in terminal.raw
