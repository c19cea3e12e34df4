"""The pictures of the README and the manual show today's screen, of today's example recording."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from xml.etree import ElementTree

PATH = Path(__file__).parents[2] / "docs" / "picture.py"
SVG = "{http://www.w3.org/2000/svg}"


def load(path=PATH):
    spec = importlib.util.spec_from_file_location("picture", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_the_picture_is_of_the_screen_as_it_is():
    picture = load()
    root = ElementTree.fromstring(picture.PICTURE.read_text("utf-8"))
    assert picture.digest() in root.findtext(f"{SVG}title"), "the example is another: make picture, and look at it"
    rows = await picture.rows_of_example()
    assert root.findtext(f"{SVG}desc") == picture.text_of(rows), (
        "the screen has changed: make picture, and look at it"
    )
    assert "faster than" in picture.text_of(rows)


def test_the_picture_that_moves_is_small_and_of_the_same_recording():
    moving = load(PATH.with_name("moving.py"))
    text = moving.MOVING.read_text("utf-8")
    assert len(text.encode()) <= moving.LARGEST_BYTES
    root = ElementTree.fromstring(text)
    assert moving.picture.digest() in root.findtext(f"{SVG}title"), "make picture, and look at it"
    style = root.findtext(f"{SVG}style")
    groups = [group.get("id") for group in root.iter(f"{SVG}g") if group.get("id")]
    assert len(groups) > 100 and all(f"#{name}{{" in style for name in groups)
    assert "prefers-reduced-motion" in style and "script" not in text.lower()


async def test_the_last_frame_of_the_picture_that_moves_is_of_the_screen_as_it_is():
    moving = load(PATH.with_name("moving.py"))
    *_, last = await moving.frames_of_example()
    words = moving.picture.text_of(last).split()
    shown = moving.MOVING.read_text("utf-8")
    assert "faster" in words
    missing = [word for word in words if word.isalpha() and word not in shown]
    assert missing == [], "the screen has changed: make picture, and look at it"
