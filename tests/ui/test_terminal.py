"""The terminal: nothing is drawn while it takes nothing, it can be set up again; and Textual's private names."""

import ast
import functools
import inspect
import itertools
import os
import queue
import re
import threading
import time
import tty
from pathlib import Path

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as some
from rich.color import ColorSystem
from rich.style import Style
from support.ui import racing_demo
from support.waiting import PATIENCE_S
from textual.app import App
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.widget import Widget

import tfmon.ui
from tfmon.ui import terminal
from tfmon.ui.terminal import InputEvent, ShownCells, TerminalDriver

from .pilot import app_of, until

UI = Path(tfmon.ui.__file__).parent
ALLOWED = {("terminal.py", "_handle_exception")}
"""Private names of Textual that tfmon uses, with the file that tells the upstream issue."""
SETTLED_S = 0.2


def private_names_of_textual() -> set[str]:
    source_of = functools.cache(inspect.getsource)
    names: set[str] = set()
    for kind in (App, Screen, Widget, MessagePump, Driver, LinuxDriver):
        for owner in kind.__mro__:
            if owner.__module__.startswith("textual"):
                names |= set(vars(owner)) | set(re.findall(r"self\.(_\w+)", source_of(owner)))
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def test_the_screen_uses_no_private_name_of_textual_but_those_that_are_allowed():
    private, used = private_names_of_textual(), set()
    for module in UI.rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            match node:
                case ast.Attribute(attr=name) | ast.FunctionDef(name=name) if name in private:
                    used.add((module.name, name))
                case ast.ImportFrom(module=str(name), names=names) if name.startswith("textual"):
                    used |= {(module.name, one.name) for one in names if "._" in name or one.name.startswith("_")}
    assert used == ALLOWED


@pytest.fixture
def pty(monkeypatch):
    mine, theirs = os.openpty()
    os.set_blocking(theirs, False)
    with os.fdopen(theirs, "w") as output:
        monkeypatch.setattr(terminal.sys, "__stderr__", output)
        yield mine, output
    os.close(mine)


def fill(output) -> None:
    """Write to a terminal until it takes nothing more: the system passes on what it took with a delay."""
    refused_since = None
    while refused_since is None or time.monotonic() - refused_since < SETTLED_S:
        try:
            os.write(output.fileno(), b"x")
            refused_since = None
        except BlockingIOError:
            refused_since = refused_since or time.monotonic()
            time.sleep(0.01)


async def test_nothing_is_drawn_while_the_terminal_takes_nothing_and_all_once_it_takes_something(pty):
    mine, output = pty
    demo = racing_demo()
    app = app_of(demo)
    async with app.run_test(size=(80, 24)) as pilot:
        app.terminal = object()
        await pilot.pause()
        fill(output)
        demo.clock.ahead(1)
        app.monitor.pull()
        before = app.screen.above.rows
        demo.clock.ahead(60)
        app.monitor.pull()
        assert app.screen.above.rows == before, "the frame is held back"
        while app._batch_count:
            os.read(mine, 100_000)
            await pilot.pause()
        await until(pilot, lambda: app.screen.above.rows != before)
        app.terminal = None


def test_a_terminal_that_is_closed_is_not_set_up_again(monkeypatch, pty):
    mine, _ = pty
    done: list[str] = []
    for name in ("suspend_application_mode", "resume_application_mode"):
        monkeypatch.setattr(TerminalDriver, name, lambda _, name=name: done.append(name))
    driver = TerminalDriver.__new__(TerminalDriver)
    driver.set_up_again()
    assert done == ["suspend_application_mode", "resume_application_mode"]
    os.close(mine)
    driver.set_up_again()
    assert len(done) == 2
    os.dup2(os.open(os.devnull, os.O_RDONLY), mine)


def test_the_thread_that_reads_keys_sleeps_until_there_is_one_or_it_must_end(pty):
    mine, theirs = pty
    tty.setraw(theirs)
    event, answers = InputEvent(theirs.fileno()), queue.Queue[bool]()

    def answer(timeout_s: float = PATIENCE_S) -> bool:
        threading.Thread(target=lambda: answers.put(event.is_set()), daemon=True).start()
        return answers.get(timeout=timeout_s)

    with pytest.raises(queue.Empty):
        answer(SETTLED_S)
    os.write(mine, b"k")
    assert answers.get(timeout=PATIENCE_S) is False
    os.set_blocking(theirs.fileno(), True)
    assert os.read(theirs.fileno(), 9) == b"k" and answer() is False, "the rest of a key may follow"
    event.set()
    assert answer() is True


STYLES = [
    Style(color=colour, bgcolor=ground, bold=bold, underline=underline)
    for colour, ground in itertools.product(("#56b4e9", "#e0e0e0", "color(9)"), ("#121212", "color(4)"))
    for bold, underline in itertools.product((False, True), repeat=2)
]
segments = some.lists(
    some.tuples(some.text("ab─日", max_size=4), some.sampled_from([*STYLES, Style()])), max_size=5
)
moves = some.tuples(some.integers(1, 3), some.integers(1, 9))
frames = some.lists(some.lists(some.tuples(moves, segments), min_size=1, max_size=4), max_size=4)


@given(frames, some.sampled_from([ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT, ColorSystem.STANDARD]))
def test_a_terminal_shows_the_same_if_only_changed_cells_are_written(frames, colours):
    cells = ShownCells()
    whole, changed = pyte.Screen(60, 3), pyte.Screen(60, 3)
    for frame in frames:
        written = ""
        for (y, x), parts in frame:
            drawn = [style.render(text, color_system=colours) for text, style in parts]
            written += f"\x1b[{y};{x}H" + "".join(drawn)
        pyte.Stream(whole).feed(written)
        pyte.Stream(changed).feed(cells.update(written))
        for y, x in itertools.product(range(3), range(60)):
            assert whole.buffer[y][x] == changed.buffer[y][x]
        assert (whole.cursor.x, whole.cursor.y) == (changed.cursor.x, changed.cursor.y)


def test_only_changed_cells_and_codes_are_written():
    text, accent = (Style(color=colour, bgcolor="#121212") for colour in ("#e0e0e0", "#56b4e9"))
    cells = ShownCells()

    def row(number: str) -> str:
        return "\x1b[2;1H" + text.render("speed  ") + accent.render(number) + text.render(" steps/s") + "\x1b[1;1H"

    assert "speed" in cells.update(row("1 402"))
    assert cells.update(row("1 402")) == "\x1b[1;1H"
    assert cells.update(row("1 397")) == "\x1b[2;10H\x1b[38;2;86;180;233;48;2;18;18;18m397\x1b[0m\x1b[1;1H"
    both = "\x1b[1;1H" + text.render("a") + accent.render("b")
    assert cells.update(both) == "\x1b[1;1H\x1b[38;2;224;224;224;48;2;18;18;18ma\x1b[38;2;86;180;233mb\x1b[0m"


def test_all_cells_are_written_again_after_another_screen_and_the_shape_of_the_pointer_never(monkeypatch):
    written: list[str] = []
    monkeypatch.setattr(LinuxDriver, "write", lambda _, data: written.append(data))
    driver = TerminalDriver.__new__(TerminalDriver)
    driver.forget()
    for data in ("\x1b[1;1Ha", "\x1b[1;1Ha", "\x1b[?1049h", "\x1b[1;1Ha", "\x1b]22;text\x07"):
        driver.write(data)
    assert written == ["\x1b[1;1Ha", "\x1b[1;2H", "\x1b[?1049h", "\x1b[1;1Ha"]
