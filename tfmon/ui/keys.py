"""Every key, declared once: the screen binds them, the bottom line shows them, the help lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Key:
    """A binding: what is pressed, what it does, and what it is for."""

    id: str
    """Name by which the key can be remapped."""
    keys: str
    """As Textual names them, with commas between."""
    action: str
    label: str
    """How the key is written on the screen."""
    help: str
    group: str


RACE_KEYS = (
    Key("prefetch.next", "p", "step_knob('prefetch', 1)", "p", "prefetch: off, 1, 2, auto", "Knobs"),
    Key("batch.down", "b", "step_knob('batch_size', -1)", "b", "batch size down, by powers of two", "Knobs"),
    Key("batch.up", "B", "step_knob('batch_size', 1)", "B", "batch size up, by powers of two", "Knobs"),
    Key("graph", "g", "step_knob('graph', 1)", "g", "the step as one tf.function, or eager", "Knobs"),
    Key("xla", "x", "step_knob('xla', 1)", "x", "compile the tf.function with XLA, or not", "Knobs"),
    Key("mixed", "m", "step_knob('mixed_precision', 1)", "m", "mixed precision: off, bfloat16, float16", "Knobs"),
    Key("knobs", "k", "show_knobs", "k", "all the knobs of this scenario", "Knobs"),
    Key("pause", "space", "pause_or_run", "Space", "pause training, or go on", "Race"),
    Key("mode", "t", "switch_mode", "t", "train in turns (a fair race), or all at once", "Race"),
    Key("crossover", "c", "show_crossover", "c", "find the value of a knob at which the lead changes", "Race"),
    Key("try", "e", "try_advice", "e", "try what may help a lane, and keep it if it does", "Race"),
    Key("undo", "u", "undo_advice", "u", "take back what was kept last", "Race"),
    Key("tune", "E", "show_tuning", "E", "try one change after the other until nothing helps", "Race"),
    Key("restart", "r", "restart", "r", "start again with the settings in force", "Race"),
    Key("scenario", "s", "pick_scenario", "s", "race another scenario", "Race"),
    Key("lane.detail", "enter,i", "show_lane", "Enter", "all about a lane, and what may help it", "Lanes"),
    Key(
        "lane.profile",
        "P",
        "profile_lane",
        "P",
        "profile 20 steps of a lane: its operations and waits",
        "Lanes",
    ),
    Key("focus.next", "tab", "move_focus(1)", "Tab", "keys act on the next lane only, then on all", "Lanes"),
    Key("focus.previous", "shift+tab", "move_focus(-1)", "Shift+Tab", "the same, backwards", "Lanes"),
    Key("focus.all", "escape", "focus_all", "Esc", "keys act on all lanes", "Lanes"),
    Key("page.next", "pagedown", "move_page(1)", "PgDn", "lanes that found no room", "Lanes"),
    Key("page.previous", "pageup", "move_page(-1)", "PgUp", "the lanes before them", "Lanes"),
    Key("doctor", "d", "show_doctor", "d", "examine TensorFlow, GPU and machine", "tfmon"),
    Key("picture", "w", "save_picture", "w", "save a picture of the screen, an SVG file, here", "tfmon"),
    Key("help", "question_mark,f1", "show_help", "?", "this page; F1 does the same", "tfmon"),
    Key("quit", "q", "app.quit", "q", "end the lanes and leave; twice: at once. Ctrl+C does the same", "tfmon"),
)
"""Keys of the race screen."""

_LABELS = {key.id: key.label for key in RACE_KEYS}


def key_of(binding: str, keys: Mapping[str, str]) -> str:
    """Return how the key of a binding is written, as remapped by the user or as built in."""
    if binding in keys:
        return keys[binding].split(",")[0]
    return _LABELS[binding]
