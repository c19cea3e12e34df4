"""The picture of the README shows today's screen, of today's example recording."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from xml.etree import ElementTree

PATH = Path(__file__).parents[2] / "docs" / "picture.py"
SVG = "{http://www.w3.org/2000/svg}"


def load():
    spec = importlib.util.spec_from_file_location("picture", PATH)
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
