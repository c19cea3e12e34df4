"""Keys of the user's own: read from words, checked, and turned into what Textual takes."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterator, Mapping

from tfmon.ui.keys import KEYS, PAGE_KEYS, RACE_KEYS, REPLAY_KEYS, STOP, watches

_ALIASES = {
    "esc": "escape", "return": "enter", "pgdn": "pagedown", "pgup": "pageup", "del": "delete", "ins": "insert",
    "?": "question_mark",
}  # fmt: skip
_HELD = ("ctrl", "alt", "shift", "super", "hyper", "meta")
_BUILT_IN = {key.id: tuple(key.keys.split(",")) for key in KEYS}
_EVERYWHERE = {STOP.id, "picture", "palette"}
_RACE = {key.id for key in RACE_KEYS} | _EVERYWHERE
_PAGES = {key.id for key in PAGE_KEYS} | _EVERYWHERE
_REPLAY = {key.id for key in REPLAY_KEYS} | {key.id for key in RACE_KEYS if watches(key.action)} | _EVERYWHERE
_ALSO_ON_PAGES = {
    "knobs", "crossover", "tune", "undo", "lane.detail", "lane.profile", "lane.log", "doctor", "help",
}  # fmt: skip
"""Keys of the race that act on pages, too; most because a page closes with the key that opened it."""


def read_keymap(wanted: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the keys by id as Textual names them, and a line for each mistake.

    `wanted` has one key, or some with commas between, for the id of a binding in `tfmon.ui.keys`.
    """
    keymap: dict[str, str] = {}
    mistakes = []
    for binding, words in wanted.items():
        if binding not in _BUILT_IN:
            near = difflib.get_close_matches(binding, _BUILT_IN, n=1)
            mistakes.append(f"there is no key {binding!r}; " + (f"did you mean {near[0]!r}?" if near else _some()))
            continue
        keys = [key_named(word) for word in words.split(",")]
        wrong = [word.strip() for word, key in zip(words.split(","), keys, strict=True) if not key]
        if wrong:
            mistakes.append(f"{binding}: {wrong[0]!r} is no key; such are f, F, ctrl+f, f5, space, enter, comma")
        else:
            keymap[binding] = ",".join(dict.fromkeys(keys))
    return keymap, [*mistakes, *dict.fromkeys(_clashes(keymap))]


def key_named(word: str) -> str:
    """Return the name that Textual has for a key, however the user wrote it; "" for what is no key."""
    from textual.keys import KEY_NAME_REPLACEMENTS, Keys, _character_to_key

    word = word.strip()
    *held, name = word.split("+") if len(word) > 1 else [word]
    held = [part.strip().lower() for part in held]
    name = name.strip()
    if not name or any(part not in _HELD for part in held):
        return ""
    if len(name) == 1 and name.isprintable():
        if held == ["shift"]:
            return name.upper() if name.isalpha() else ""
        name = _character_to_key(name.lower() if held else name)
    else:
        name = _ALIASES.get(name.lower(), name.lower())
        known = {key.value for key in Keys} | set(KEY_NAME_REPLACEMENTS.values())
        if name not in known and not _is_character(name):
            return ""
    return "+".join([*sorted(held), name])


def _is_character(name: str) -> bool:
    try:
        return unicodedata.lookup(name.replace("_", " ")).isprintable()
    except KeyError:
        return False


def _clashes(keymap: Mapping[str, str]) -> Iterator[str]:
    """Name every key that would do two things in one place, of which the user has chosen at least one."""
    keys = {
        binding: (*keymap[binding].split(","),) if binding in keymap else _BUILT_IN[binding]
        for binding in _BUILT_IN
    }
    for one in keymap:
        for other in _BUILT_IN:
            if one == other or not _meet(one, other):
                continue
            for key in keys[one]:
                if key in keys[other] and not (key in _BUILT_IN[one] and key in _BUILT_IN[other]):
                    first, second = sorted((one, other))
                    yield f"{first} and {second} have the same key {key!r}; give one of them another"


def _meet(one: str, other: str) -> bool:
    """Tell whether two bindings act in the same place."""
    pair = {one, other}
    return pair <= _RACE or pair <= _PAGES or pair <= _REPLAY or bool(pair & _ALSO_ON_PAGES and pair & _PAGES)


def _some() -> str:
    return "there are " + ", ".join(sorted(_BUILT_IN))
