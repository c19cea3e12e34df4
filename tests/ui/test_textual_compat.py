"""What tfmon uses of Textual's private side is there, and nothing else of it is used; output to the terminal."""

from __future__ import annotations

import ast
import functools
import inspect
import io
import os
import re
from pathlib import Path

import pytest
import textual
from support.ui import racing_demo
from textual._compositor import Compositor
from textual._styles_cache import StylesCache
from textual.app import App
from textual.command import CommandPalette
from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.widget import Widget

import tfmon.ui
from tfmon.ui.textual_compat import IDLE_S, PatientSelector, TerminalOutput, wait_for_keys

from .pilot import app_of, until

UI = Path(tfmon.ui.__file__).parent
CALLED = [
    (App, "_display", ("self", "screen", "renderable")),
    (App, "_set_pointer_shape", ("self", "shape")),
    (App, "_handle_exception", ("self", "error")),
    (MessagePump, "_dispatch_message", ("self", "message")),
    (CommandPalette, "_action_command_list", ("self", "action")),
    (LinuxDriver, "write", ("self", "data")),
    (LinuxDriver, "suspend_application_mode", ("self",)),
    (LinuxDriver, "resume_application_mode", ("self",)),
]
"""Functions that tfmon calls or overrides, with their parameters."""
READ = [
    (App, "_driver"), (App, "_sync_available"), (App, "_batch_count"), (Screen, "_compositor"),
    (Screen, "_layout_required"), (Screen, "_dirty_widgets"), (Widget, "_repaint_required"),
    (LinuxDriver, "_file"),
]  # fmt: skip
"""Attributes that tfmon reads, and those that it sets."""


@pytest.mark.parametrize(("owner", "name", "parameters"), CALLED, ids=lambda part: getattr(part, "__name__", None))
def test_a_private_function_of_textual_is_as_tfmon_uses_it(owner, name, parameters):
    found = getattr(owner, name, None)
    assert found is not None, told(owner, name)
    assert tuple(inspect.signature(found).parameters) == parameters, f"{owner.__name__}.{name} takes others"


def test_keys_are_waited_for_patiently_and_taken_at_once(monkeypatch):
    """Idle, the driver wakes up a few times a second; after a key it looks as soon as Textual wants."""
    wait_for_keys()
    assert vars(linux_driver)["selectors"].SelectSelector is PatientSelector
    source = inspect.getsource(LinuxDriver.run_input_thread)
    assert "selectors.SelectSelector()" in source, "the driver waits for keys in another way"
    assert set(re.findall(r"\bselectors\.(\w+)", source)) <= {"SelectSelector", "EVENT_READ", "SelectorKey"}
    waits, found = [], [[]] * 9 + [["a key"]] + [[]] * 2
    monkeypatch.setattr(
        "selectors.SelectSelector.select", lambda _, timeout: waits.append(timeout) or found.pop(0)
    )
    selector = PatientSelector()
    for _ in range(12):
        selector.select(0.1)
    assert waits == [0.1] * 6 + [IDLE_S] * 4 + [0.1] * 2


source_of = functools.cache(inspect.getsource)


def test_the_private_attributes_of_textual_are_there():
    """An attribute is set by the class itself or by one below it in the order of inheritance."""
    for owner, name in READ:
        sources = [source_of(kind) for kind in owner.__mro__ if kind.__module__.startswith("textual")]
        set_or_defined = re.compile(rf"(self\.{name}\b.*=|^    {name}\b.*[:=]|def {name}\()", re.MULTILINE)
        assert any(set_or_defined.search(source) for source in sources), told(owner, name)
    assert isinstance(inspect.getattr_static(Compositor, "visible_widgets"), property)
    assert callable(StylesCache.get_inner_outer.cache_clear)


def told(owner: type, name: str) -> str:
    return f"Textual {textual.__version__} has no {owner.__name__}.{name}, which ui/textual_compat.py uses"


def private_names_of_textual() -> set[str]:
    names: set[str] = set()
    for kind in (App, Screen, Widget, MessagePump, LinuxDriver, Compositor):
        for owner in kind.__mro__:
            if owner.__module__.startswith("textual"):
                names |= set(vars(owner)) | set(re.findall(r"self\.(_\w+)", source_of(owner)))
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def test_only_one_module_uses_private_names_of_textual_and_none_shadows_one():
    private = private_names_of_textual()
    found = []
    for module in UI.rglob("*.py"):
        if module.name == "textual_compat.py":
            continue
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            match node:
                case ast.Attribute(attr=name) | ast.FunctionDef(name=name) if name in private:
                    found.append(f"{module}:{node.lineno}: {name}")
                case ast.ImportFrom(module=str(name), names=names) if name.startswith("textual"):
                    hidden = [one.name for one in names if "._" in name or one.name.startswith("_")]
                    found += [f"{module}:{node.lineno}: {one}" for one in hidden]
    assert not found


# ---------------------------------------------------------------- output


def test_a_frame_waits_for_the_one_before_and_is_requested_once():
    free: list[int] = []
    output = TerminalOutput(io.StringIO(), lambda: free.append(1))
    assert output.may_draw()
    output.expect()
    assert not output.may_draw()
    assert not output.may_draw()
    output.write("frame")
    assert not output.may_draw(), "written, but not taken"
    output.flush()
    assert output.may_draw()
    assert free == [1]
    output.expect()
    output.flush()
    assert free == [1], "nobody wanted that frame"


async def test_a_terminal_that_is_closed_is_not_set_up_again(monkeypatch):
    app = app_of(racing_demo())
    async with app.run_test(size=(80, 24)):
        touched: list[str] = []
        monkeypatch.setattr(app._driver, "suspend_application_mode", lambda: touched.append("left"), raising=False)
        monkeypatch.setattr(app._driver, "resume_application_mode", lambda: touched.append("taken"), raising=False)
        mine, theirs = os.openpty()
        with os.fdopen(theirs, "w") as terminal:
            app.output = TerminalOutput(terminal, app._draw_again)
            app.take_terminal()
            assert touched == ["left", "taken"]
            os.close(mine)
            app.take_terminal()
            assert touched == ["left", "taken"]


async def test_nothing_is_painted_while_the_terminal_is_busy_and_all_once_it_is_free(monkeypatch):
    painted: list[object] = []
    monkeypatch.setattr(App, "_display", lambda _app, _screen, renderable: painted.append(renderable))
    app = app_of(racing_demo())
    async with app.run_test(size=(80, 24)) as pilot:
        app.output = TerminalOutput(io.StringIO(), app._draw_again)
        app.output.expect()
        painted.clear()
        app.screen.refresh()
        await pilot.pause()
        assert painted == []
        app.output.flush()
        await until(pilot, lambda: painted)
