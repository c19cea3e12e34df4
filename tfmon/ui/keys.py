"""The key bindings, and the displayed names of keys."""

from __future__ import annotations

import difflib
import functools
import unicodedata
from collections.abc import Mapping

from tfmon.model.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Key:
    """A key binding."""

    id: str
    keys: str
    """Textual's key names, separated by commas."""
    action: str
    help: str
    group: str


_CLOSER = "Looking closer"
RACE_KEYS = (
    Key("prefetch.next", "p", "step_knob('prefetch', 1)", "change prefetch: off, 1, 2, auto", "Knobs"),
    Key("batch.down", "b", "step_knob('batch_size', -1)", "halve the batch size", "Knobs"),
    Key("batch.up", "B", "step_knob('batch_size', 1)", "double the batch size", "Knobs"),
    Key("graph", "g", "step_knob('graph', 1)", "train the step as one tf.function, or eager", "Knobs"),
    Key("xla", "x", "step_knob('xla', 1)", "compile the tf.function with XLA, or not", "Knobs"),
    Key("mixed", "m", "step_knob('mixed_precision', 1)", "change mixed precision: off, (b)float16", "Knobs"),
    Key("knobs", "k", "show_tab('knobs')", "show all knobs", "Knobs"),
    Key("pause", "space", "pause_or_resume", "pause training, or resume", "Race"),
    Key("mode", "t", "switch_mode", "take turns (a fair race), or train all at once", "Race"),
    Key("crossover", "c", "show_crossover", "find the value of a knob at which the lead changes", "Race"),
    Key("try", "e", "try_advice", "try what may help a lane, and keep it if it does", "Race"),
    Key("undo", "u", "undo", "take back the last change, yours or one that was kept", "Race"),
    Key("history", "H", "open('history')", "list every change of a setting, and what came of it", "Race"),
    Key("tune", "E", "open('tuning')", "try one change after the other until nothing helps", "Race"),
    Key("restart", "r", "restart", "start the focused lane again, or those that failed, or all", "Race"),
    Key("scenario", "s", "pick_scenario", "race another scenario", "Race"),
    Key("lane.detail", "i,enter", "show_tab('lane')", "show all about a lane, and what may help it", "Lanes"),
    Key(
        "lane.profile",
        "P",
        "profile_lane",
        "profile 20 steps of the focused lane, or of two, and compare them",
        "Lanes",
    ),
    Key("lane.log", "l", "show_tab('log')", "show what a lane printed, and what happened to it", "Lanes"),
    Key("focus.next", "tab", "move_focus(1)", "focus the next lane: keys act on it only", "Lanes"),
    Key("focus.previous", "shift+tab", "move_focus(-1)", "focus the lane before: keys act on it only", "Lanes"),
    Key("focus.all", "escape", "focus_all", "let keys act on all lanes", "Lanes"),
    Key("page.next", "pagedown", "move_page(1)", "show hidden lanes, and focus the first of them", "Lanes"),
    Key("page.previous", "pageup", "move_page(-1)", "show the hidden lanes before, likewise", "Lanes"),
    Key("zoom", "z", "toggle_zoom", "zoom in on one lane, and back; so does a double click", _CLOSER),
    Key("chart.metric", "v", "next_metric", "chart throughput, step time, loss, CPU or memory", _CLOSER),
    Key("chart.scale", "a", "next_scale", "change the axis of the charts: shared, or each lane's own", _CLOSER),
    Key("chart.span", "h", "next_span", "show 1, 5 or 30 minutes in the charts", _CLOSER),
    Key("account", "A", "open('account')", "show where the time of the whole run went, by line", _CLOSER),
    Key("copy", "y", "open('copy')", "copy the verdict, and the command that repeats this race", _CLOSER),
    Key("doctor", "d", "show_tab('doctor')", "examine TensorFlow, GPU and machine", "tfmon"),
    Key("gpus", "G", "show_tab('gpus')", "show all GPUs: load, memory, power, and every process on them", "tfmon"),
    Key("runs", "R", "show_tab('runs')", "list recorded races: replay, delete", "tfmon"),
    Key("picture", "w", "save_picture", "save the screen (SVG) and the table (text) here", "tfmon"),
    Key("report", "W", "save_report", "save a report of what is recorded here (HTML), to hand on", "tfmon"),
    Key("palette", "colon,ctrl+p", "open('palette')", "find any of these by name; also Ctrl+P", "tfmon"),
    Key("help", "question_mark,f1", "open('help')", "explain every key and number; F1 does the same", "tfmon"),
    Key("quit", "q", "quit", "end the lanes and leave, twice: at once; on a page: back", "tfmon"),
)

PAGE_KEYS = (
    Key("close", "escape,q", "dismiss", "go back; so does the key that opened the page", "On a page"),
    Key("choose", "enter,space", "choose", "do what is chosen", "On a page"),
    Key("move.down", "down", "move(1)", "go down by a line", "On a page"),
    Key("move.up", "up", "move(-1)", "go up by a line", "On a page"),
    Key("move.right", "right,plus", "step(1)", "set the next value", "On a page"),
    Key("move.left", "left,minus", "step(-1)", "set the value before", "On a page"),
    Key("move.next", "tab", "turn(1)", "go to the next lane, or down", "On a page"),
    Key("move.previous", "shift+tab", "turn(-1)", "go to the lane before, or up", "On a page"),
    Key("move.page.down", "pagedown", "scroll_page(1)", "go down by a page", "On a page"),
    Key("move.page.up", "pageup", "scroll_page(-1)", "go up by a page", "On a page"),
    Key("move.home", "home", "scroll_home", "go to the first line", "On a page"),
    Key("move.end", "end", "scroll_end", "go to the last line; the log follows from there on", "On a page"),
    Key("lane.stack", "S", "ask_stack", "show the stacks of a lane's threads, on its page", "On a page"),
    Key("lane.kill", "K", "kill", "end the lane, by force if necessary, on its page", "On a page"),
    Key("filter", "slash", "filter", "show only what contains the words that are typed", "On a page"),
    Key("sort", "o", "sort", "sort a list by its next column", "On a page"),
    Key("sort.reverse", "O", "reverse", "reverse the sort order", "On a page"),
    Key("log.view", "v", "turn_view", "show all lines of the log, events, output or TensorFlow's", "On a page"),
    Key("run.delete", "D", "delete", "delete a recorded run, after a question", "On a page"),
)

REPLAY_KEYS = (
    Key("replay.pause", "space", "playback('toggle')", "pause or play; at the end, from the start", "Replay"),
    Key("replay.back", "left", "playback('skip', -5)", "go 5 s back; with Shift 60 s", "Replay"),
    Key("replay.on", "right", "playback('skip', 5)", "go 5 s on; with Shift 60 s", "Replay"),
    Key("replay.far.back", "shift+left", "playback('skip', -60)", "go 60 s back", "Replay"),
    Key("replay.far.on", "shift+right", "playback('skip', 60)", "go 60 s on", "Replay"),
    Key("replay.step.back", "comma", "playback('step', -1)", "go one event back", "Replay"),
    Key("replay.step", "full_stop", "playback('step', 1)", "go one event on", "Replay"),
    Key("replay.mark.back", "left_square_bracket", "playback('go_to_mark', -1)", "go one mark back", "Replay"),
    Key("replay.mark", "right_square_bracket", "playback('go_to_mark', 1)", "go one mark on", "Replay"),
    Key("replay.slower", "minus", "playback('change_speed', -1)", "play slower", "Replay"),
    Key("replay.faster", "plus,equals_sign", "playback('change_speed', 1)", "play faster: ×1 to ×100", "Replay"),
    Key("replay.start", "home", "go_to_end(-1)", "go to the beginning", "Replay"),
    Key("replay.end", "end", "go_to_end(1)", "go to the end", "Replay"),
)

_READ_ONLY = (
    "show_crossover", "save_picture", "save_report",
    *(f"open({name!r})" for name in ("help", "history", "palette", "copy", "account")),
    *(f"show_tab({name!r})" for name in ("race", "lane", "log", "knobs", "gpus", "runs")),
    "move_focus", "focus_all", "focus_lane", "move_page", "quit",
    "toggle_zoom", "next_metric", "next_scale", "next_span",
)  # fmt: skip

SWEEP_KEYS = (
    Key("sweep.curve", "c", "toggle_curve", "draw the ratio over a knob, then over the next one", "Sweep"),
)

STOP = Key("quit.now", "ctrl+c,ctrl+q", "quit", "end the lanes and leave, from any page", "On a page")
KEYS = (*RACE_KEYS, *PAGE_KEYS, STOP, *REPLAY_KEYS, *SWEEP_KEYS)

BY_ID = {key.id: key for key in KEYS}
_SCOPES = ((*RACE_KEYS, STOP), PAGE_KEYS, REPLAY_KEYS)


def keymap_mistakes(keymap: Mapping[str, object]) -> list[str]:
    """Return the mistakes in a user's keymap."""
    mistakes = []
    for name, value in keymap.items():
        if name not in BY_ID:
            near = difflib.get_close_matches(name, BY_ID, n=1)
            hint = f"did you mean {near[0]}?" if near else "the manual lists the names: Keys and settings"
            mistakes.append(f"keys: there is no key {name!r}; {hint}")
        elif not isinstance(value, str) or not all(part.strip() for part in value.split(",")):
            mistakes.append(f'keys: {name}: {value!r} is not a key such as "f5", "ctrl+x", "?" or "x,f5"')
    if mistakes:
        return mistakes
    for scope in _SCOPES:
        owners: dict[str, str] = {}
        for key in scope:
            for pressed in str(keymap.get(key.id, key.keys)).split(","):
                owner = owners.setdefault(_key_name(pressed.strip()), key.id)
                if owner != key.id and {owner, key.id} & {*keymap}:
                    mistakes.append(f"keys: {label(pressed)!r} is the key of {owner} and of {key.id}")
    return mistakes


def _key_name(key: str) -> str:
    is_sign = len(key) == 1 and not key.isalnum()
    return unicodedata.name(key).lower().replace("-", "_").replace(" ", "_") if is_sign else key


TABS = {
    "race": "close", "lane": "lane.detail", "log": "lane.log", "knobs": "knobs", "profile": "lane.profile",
    "gpus": "gpus", "doctor": "doctor", "runs": "runs",
}  # fmt: skip
"""Key ids by tab."""


def tab_action(name: str) -> str:
    """Return the action that displays a tab."""
    return "show_tab('race')" if name == "race" else BY_ID[TABS[name]].action


_WRITTEN = {
    "escape": "Esc", "pageup": "PgUp", "pagedown": "PgDn", "delete": "Del", "insert": "Ins", "up": "↑",
    "down": "↓", "left": "←", "right": "→", "minus": "-", "plus": "+", "slash": "/", "backslash": "\\",
    "underscore": "_", "at": "@", "greater_than_sign": ">", "less_than_sign": "<",
}  # fmt: skip
_NAMED = ("space", "tab", "enter", "backspace", "home", "end")


def watches(action: str) -> bool:
    """Return whether an action changes nothing in the race."""
    return action in _READ_ONLY or action.partition("(")[0] in _READ_ONLY


def listed_keys(*, replay: bool, sweep: bool) -> tuple[Key, ...]:
    """Return the keys that the help lists."""
    if replay:
        return (*REPLAY_KEYS, *(key for key in RACE_KEYS if watches(key.action)), *PAGE_KEYS)
    if sweep:
        pages = (key for key in PAGE_KEYS if key.id.partition(".")[0] not in ("lane", "log", "run"))
        return (*SWEEP_KEYS, *pages, BY_ID["picture"], BY_ID["report"], STOP)
    return (*RACE_KEYS, *PAGE_KEYS, STOP)


def key_of(binding: str, keys: Mapping[str, str]) -> str:
    """Return the first key of a binding; `keys` maps ids to the user's keys."""
    return label(keys.get(binding, BY_ID[binding].keys))


@functools.lru_cache(maxsize=256)
def label(keys: str) -> str:
    """Return the displayed name of the first key: `Ctrl+X`, `?`, `Esc`."""
    *modifiers, name = keys.split(",", maxsplit=1)[0].strip().split("+")
    if name in _WRITTEN:
        name = _WRITTEN[name]
    elif name in _NAMED or (len(name) > 1 and name[0] == "f" and name[1:].isdigit()):
        name = name.capitalize()
    elif len(name) > 1:
        try:
            name = unicodedata.lookup(name.replace("_", " "))
        except KeyError:
            name = name.capitalize()
    elif modifiers:
        name = name.upper()
    return "+".join([*(part.capitalize() for part in modifiers), name])


def without_arrows() -> dict[str, str]:
    """Return names such as `Down` for arrow keys, by id."""
    first = {key.id: key.keys.split(",")[0] for key in KEYS}
    return {id: key.title() for id, key in first.items() if not label(key).isascii()}
