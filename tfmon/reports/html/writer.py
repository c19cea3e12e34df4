"""Writes HTML. Every text passes through here: what must stay out is taken out, and the rest is escaped."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import tfmon
from tfmon.reports.html.charts import Spec
from tfmon.reports.html.private import in_all

_HERE = Path(__file__).parent
_ALONE = {"meta", "br", "input"}


class Html(str):
    """Text that is HTML already; any other text is escaped."""

    __slots__ = ()


NOTHING = Html("")


class Writer:
    """Makes the parts of one page, and remembers its charts."""

    def __init__(self, hide: Callable[[str], str]) -> None:
        self.hide = hide
        self.level = 2
        """Of the headings of sections."""
        self._charts: dict[str, Spec] = {}
        self._data: list[Html] = []

    def tag(self, name: str, /, *children: str, **attributes: str | bool) -> Html:
        """Return an element; `_` in the name of an attribute is `-`, and one at its end is dropped."""
        words = [name]
        for key, value in attributes.items():
            key = key.rstrip("_").replace("_", "-")
            if value is True:
                words.append(key)
            elif isinstance(value, str) and value:
                words.append(f'{key}="{html.escape(self.hide(value))}"')
        inner = "".join(map(self.text, children))
        return Html(f"<{' '.join(words)}>" + ("" if name in _ALONE else f"{inner}</{name}>"))

    def text(self, text: str) -> Html:
        """Return a text as HTML."""
        return text if isinstance(text, Html) else Html(html.escape(self.hide(text)))

    def lines(self, texts: Sequence[str]) -> Html:
        """Return a list of texts; nothing for none."""
        return self.tag("ul", *(self.tag("li", text) for text in texts)) if texts else NOTHING

    def section(self, heading: str, *children: str) -> Html:
        """Return a section with its heading; nothing where it would be empty."""
        inner = Html("".join(map(self.text, children)))
        return self.tag("section", self.tag(f"h{self.level}", heading), inner) if inner else NOTHING

    def table(
        self,
        rows: Sequence[Sequence[str]],
        about: str = "",
        *,
        left: Collection[int] = (0,),
        sortable: bool = False,
        marked: Collection[int] = (),
        values: Sequence[Sequence[float | None]] | None = None,
    ) -> Html:
        """Return a table.

        Args:
            rows: Cells of every row, the head first.
            about: Its caption.
            left: Places of the columns of words; those of the others are aligned to the right.
            sortable: Whether a head sorts by its column.
            marked: Places of the rows, from 1, that are marked.
            values: The numbers behind the cells of each row but the head, to sort by.
        """

        def aligned(place: int) -> str:
            return "" if place in left else "number"

        def head(place: int, cell: str) -> Html:
            inner = self.tag("button", cell, type="button") if sortable and cell else self.text(cell)
            return self.tag("th", inner, scope="col", class_=aligned(place))

        def cell(number: int, place: int, text: str) -> Html:
            known = values[number - 1][place] if values is not None else None
            value = "" if known is None else f"{known:.12g}"
            if place == 0:
                return self.tag("th", text, scope="row", class_=aligned(place), data_value=value)
            return self.tag("td", text, class_=aligned(place), data_value=value)

        def row(number: int, cells: Sequence[str]) -> Html:
            inner = (cell(number, place, text) for place, text in enumerate(cells))
            return self.tag("tr", *inner, class_="differs" if number in marked else "")

        first, *others = rows
        caption = self.tag("caption", about) if about else NOTHING
        heads = self.tag("thead", self.tag("tr", *(head(place, text) for place, text in enumerate(first))))
        body = self.tag("tbody", *(row(number, cells) for number, cells in enumerate(others, 1)))
        return self.tag("div", self.tag("table", caption, heads if any(first) else NOTHING, body), class_="scroll")

    def folded(self, summary: str, *children: str, open_: bool = False) -> Html:
        """Return the content that opening a summary shows."""
        return self.tag("details", self.tag("summary", summary), *children, open=open_)

    def swatch(self, colour: str) -> Html:
        """Return a square of a colour of the style sheet."""
        return self.tag("span", class_="swatch", style=f"background:{colour}", aria_hidden="true")

    def figure(self, title: str, about: str, spec: Spec, *beside: str) -> Html:
        """Return a chart with its title, what it shows, and what stands beside it, such as its table."""
        name = f"chart-{len(self._charts) + 1}"
        self._charts[name] = in_all(spec, self.hide)
        caption = self.tag("figcaption", self.tag("strong", title), f" {about}" if about else "")
        return self.tag("figure", caption, self.tag("div", id=name, class_="chart"), *beside)

    def data(self, name: str, value: Any) -> None:  # noqa: ANN401 - what JSON can hold
        """Put a value into the page as JSON, for programs."""
        self._data.append(_json(name, in_all(value, self.hide)))

    def page(self, title: str, script: str, *children: str) -> str:
        """Return the whole file: nothing in it is loaded from anywhere, and no other script may run."""
        style, own = (_HERE / "page.css").read_text("utf-8"), (_HERE / "page.js").read_text("utf-8")
        scripts = [script.replace("</script", "<\\/script"), own]
        hashes = " ".join(
            f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in scripts
        )
        policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {hashes}"
        head = (
            self.tag("meta", charset="utf-8"),
            Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
            self.tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            self.tag("meta", name="generator", content=f"tfmon {tfmon.__version__}"),
            self.tag("title", title),
            Html(f"<style>\n{style}</style>"),
        )
        body = (
            self.tag("main", *children),
            *self._data,
            _json("tfmon-charts", self._charts),
            Html(f'<script type="module">{scripts[0]}</script>'),
            Html(f'<script type="module">{scripts[1]}</script>'),
        )
        return f'<!DOCTYPE html>\n<html lang="en">{self.tag("head", *head)}{self.tag("body", *body)}</html>\n'


def _json(name: str, value: Any) -> Html:  # noqa: ANN401
    """Return JSON in an element that no text in it can end."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(f'<script type="application/json" id="{name}">{text}</script>')
