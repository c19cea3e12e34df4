"""Writes a report as one HTML file that needs no network.

All text passes through here: secrets are hidden, the rest is escaped. Vega-Lite with Vega (877 KiB, included)
draws the charts. Bokeh's script takes 1,239 KiB, and its canvas prints as pixels and is opaque to screen readers.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import getpass
import hashlib
import html
import importlib.util
import itertools
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tfmon.errors import UsageError
from tfmon.model.gpu import ProcessName
from tfmon.model.gpu_others import names_in
from tfmon.model.session import Snapshot
from tfmon.reports import Block, Chart, Code, Item, Items, Lines, Note, Report, Section, Table
from tfmon.reports.charts import COLOURS, Spec
from tfmon.version import __version__

_HERE = Path(__file__).parent
_ALONE = {"meta", "br", "input"}
VEGA_LITE = "6.4"


class Html(str):
    """HTML; any other text is escaped."""

    __slots__ = ()


NOTHING = Html("")


def charts_script() -> str:
    """Return the script that defines `vegaEmbed`, made in two seconds by a child; raises UsageError."""
    if importlib.util.find_spec("vl_convert") is None:
        raise UsageError(
            "an HTML report needs the extra `report`, which is not installed here",
            f"{sys.executable} -m pip install 'tfmon[report]'; --markdown needs nothing",
        )
    code = f"import sys; sys.path[:] = {sys.path!r}; import {__name__} as it; it.write_charts_script()"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8")
    if made.returncode:
        reason = (made.stderr.strip().splitlines() or [f"exit code {made.returncode}"])[-1]
        raise UsageError(f"the script for the charts could not be put together: {reason}")
    return made.stdout


def write_charts_script() -> None:
    """Write the script to stdout: the child's part, in a separate process because it keeps Python's lock."""
    import vl_convert

    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
    sys.stdout.buffer.write(script.encode())


def write(report: Report, hide: Callable[[str], str], script: str) -> str:
    """Return the whole file, which loads nothing and allows no other script."""
    return HtmlWriter(hide).page(report, script)


class HtmlWriter:
    """Makes the parts of one page, and remembers its charts."""

    def __init__(self, hide: Callable[[str], str]) -> None:
        self._hide = hide
        self._charts: dict[str, Spec] = {}

    def page(self, report: Report, script: str) -> str:
        """Return the whole file."""
        style, own = (_HERE / "page.css").read_text("utf-8"), (_HERE / "page.js").read_text("utf-8")
        scripts = [script.replace("</script", "<\\/script"), own]
        hashes = " ".join(
            f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in scripts
        )
        policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {hashes}"
        head = (
            self._tag("meta", charset="utf-8"),
            Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
            self._tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            self._tag("meta", name="generator", content=f"tfmon {__version__}"),
            self._tag("title", f"tfmon: {report.title}"),
            Html(f"<style>\n{style}</style>"),
        )
        main = (
            self._tag("h1", report.title),
            self._tag("p", report.when, class_="quiet") if report.when else NOTHING,
            *map(self._block, report.answer),
            self._controls(report.keys),
            *map(self._section, report.sections),
            self._foot(report.data),
        )
        body = (
            self._tag("main", *main),
            _json("tfmon-result", in_all(report.data, self._hide)),
            _json("tfmon-charts", self._charts),
            *(Html(f'<script type="module">{one}</script>') for one in scripts),
        )
        return f'<!DOCTYPE html>\n<html lang="en">{self._tag("head", *head)}{self._tag("body", *body)}</html>\n'

    def _tag(self, name: str, /, *children: str, **attributes: str | bool) -> Html:
        """Return an element; `_` in the name of an attribute becomes `-`, and a final one is dropped."""
        parts = [name]
        for key, value in attributes.items():
            key = key.rstrip("_").replace("_", "-")
            if value is True:
                parts.append(key)
            elif isinstance(value, str) and value:
                parts.append(f'{key}="{html.escape(self._hide(value))}"')
        inner = "".join(map(self._text, children))
        return Html(f"<{' '.join(parts)}>" + ("" if name in _ALONE else f"{inner}</{name}>"))

    def _text(self, text: str) -> Html:
        return text if isinstance(text, Html) else Html(html.escape(self._hide(text)))

    def _controls(self, keys: Sequence[tuple[str, str]]) -> Html:
        """Return the boxes that show and hide series in all charts."""
        boxes = []
        for place, (key, name) in enumerate(keys):
            box = self._tag("input", type="checkbox", checked=True, data_series=key)
            boxes.append(self._tag("label", box, self._swatch(f"var(--lane{place % COLOURS})"), name))
        legend = self._tag("legend", "lanes shown")
        return self._tag("fieldset", legend, *boxes, class_="controls") if boxes else NOTHING

    def _swatch(self, colour: str) -> Html:
        return self._tag("span", class_="swatch", style=f"background:{colour}", aria_hidden="true")

    def _section(self, section: Section) -> Html:
        """Return a section with its heading. Nothing if it is empty. Charts are side by side."""
        inner: list[Html] = []
        for charts, blocks in itertools.groupby(section.shown, lambda block: isinstance(block, Chart)):
            parts = map(self._block, blocks)
            inner += [self._tag("div", *parts, class_="grid")] if charts else parts
        heading = self._tag("h2", section.heading) if section.heading else NOTHING
        return self._tag("section", heading, *inner) if inner else NOTHING

    def _block(self, block: Block) -> Html:
        match block:
            case Note():
                return self._tag("p", block.text, class_=block.kind)
            case Lines():
                return self._tag("ul", *(self._tag("li", text) for text in block.texts))
            case Code():
                return self._tag("pre", block.text)
            case Items():
                return self._tag("dl", *(part for one in block.items for part in self._item(one)))
            case Table():
                return self._table(block)
            case Chart():
                return self._chart(block)

    def _item(self, item: Item) -> list[Html]:
        term = self._tag(
            "dt", self._tag("span", item.label, class_="label"), Html(" "), self._tag("strong", item.title)
        )
        return [term, *(self._tag("dd", text) for text in (item.text, *item.details) if text)]

    def _table(self, table: Table) -> Html:
        def aligned(place: int) -> str:
            return "" if place in table.left else "number"

        def head(place: int, text: str) -> Html:
            inner = self._tag("button", text, type="button") if table.values is not None and text else text
            return self._tag("th", inner, scope="col", class_=aligned(place))

        def cell(number: int, place: int, text: str) -> Html:
            known = table.values[number - 1][place] if table.values is not None else None
            value = "" if known is None else f"{known:.12g}"
            depth = len(text) - len(text.lstrip())
            indent = f"padding-left:{depth / 2:g}em" if depth else ""
            kind, scope = ("th", "row") if place == 0 else ("td", "")
            return self._tag(kind, text, scope=scope, class_=aligned(place), data_value=value, style=indent)

        def row(number: int, cells: Sequence[str]) -> Html:
            inner = (cell(number, place, text) for place, text in enumerate(cells))
            return self._tag("tr", *inner, class_="differs" if number in table.marked else "")

        first, *others = table.rows
        caption = self._tag("caption", table.about) if table.about else NOTHING
        heads = self._tag("thead", self._tag("tr", *(head(place, text) for place, text in enumerate(first))))
        body = self._tag("tbody", *(row(number, cells) for number, cells in enumerate(others, 1)))
        whole = self._tag("table", caption, heads if any(first) else NOTHING, body)
        scrolled = self._tag("div", whole, class_="scroll", tabindex="0", role="region")
        return self._tag("details", self._tag("summary", table.folded), scrolled) if table.folded else scrolled

    def _chart(self, chart: Chart) -> Html:
        name = f"chart-{len(self._charts) + 1}"
        self._charts[name] = in_all(chart.spec, self._hide)
        caption = self._tag("figcaption", self._tag("strong", chart.title), f" {chart.about}")
        entries = (self._tag("li", self._swatch(colour), text) for colour, text in chart.legend)
        legend = self._tag("ul", *entries, class_="legend") if chart.legend else NOTHING
        table = self._table(chart.table) if chart.table is not None else NOTHING
        return self._tag("figure", caption, self._tag("div", id=name, class_="chart"), legend, table)

    def _foot(self, data: dict[str, Any]) -> Html:
        shown = json.dumps(data, indent=1, allow_nan=False, ensure_ascii=False)
        made = f"Written by tfmon {__version__} on {time.strftime('%Y-%m-%d')}; charts by Vega-Lite."
        if self._hide is not keep:
            what = "names of machines and users, for what other users run, and for what looks like a secret"
            made += f" {HIDDEN} stands for {what}."
        summary = "The result as JSON; it also stands in this file under the id tfmon-result"
        return self._tag(
            "section",
            self._tag("h2", "For programs"),
            self._tag("details", self._tag("summary", summary), self._tag("pre", shown)),
            self._tag("p", made, class_="quiet"),
        )


def _json(name: str, value: Any) -> Html:  # noqa: ANN401 - what JSON can hold
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(f'<script type="application/json" id="{name}">{text}</script>')


HIDDEN = "•••"
_SECRET = r"(?:api[-_]?key|access[-_]?key|token|secret|pass(?:word|wd|phrase)|credentials?|auth)"
"""A name that contains this is the name of a secret."""
_OPTION = r"(?:key|pass|pwd|pw|pin|tok|cookie|sig|signature|dsn|cred|bearer)"
"""Last word of an option or variable with a secret."""
_LIKE_P = "params?|patch|path|patience|plot|pool|port|precision|prefetch|prefix|pretrained|print|profile|progress"
"""Options with one dash that begin with -p and have no password."""
_VALUE = r"""(?:"[^"]*"|'[^']*'|[^\s"',;&]+)"""
_PATTERNS = (
    # --api-key=…, --token …, PASSWORD=…, "secret": "…"; a small number of tokens is none
    (
        re.compile(
            rf"""(?i)(?!-{{0,2}}[\w.-]*tokens["']?[=:\s]+\d{{1,6}}(?![\w.]))"""
            rf"""(--?[\w.-]*{_SECRET}[\w.-]*(?:=|\s+)|\b[\w.-]*{_SECRET}[\w.-]*["']?\s*[=:]\s*)"""
            rf"""(?:bearer\s+)?{_VALUE}"""
        ),
        rf"\1{HIDDEN}",
    ),
    # --key=…, --wandb-key …, WANDB_KEY=…, COMET_KEY: …, -p …, -pS3cret; a number after -p is a port
    (re.compile(rf"(?i)((?<!\S)--?(?:[\w.-]*[-_.])?{_OPTION}(?:=|\s+)){_VALUE}"), rf"\1{HIDDEN}"),
    (re.compile(rf"(?i)((?:[?&]|\b\w[\w-]*[_-]){_OPTION}(?:=|:\s)){_VALUE}"), rf"\1{HIDDEN}"),
    (re.compile(rf"((?<!\S)(?!-(?:{_LIKE_P})(?:[=\s]|$))-p(?:=|\s+|(?!=)))(?!\d+(?!\S)){_VALUE}"), rf"\1{HIDDEN}"),
    (re.compile(r"(?i)(\bbearer\s+)[\w.~+/=-]{8,}"), rf"\1{HIDDEN}"),
    # user:password@ in an address; -u user:password
    (re.compile(r"(\w://)[^\s/?#\"']+@"), rf"\1{HIDDEN}@"),
    (re.compile(rf"((?<!\S)(?:-u|--user(?:name)?)(?:=|\s+)[^\s:]+:){_VALUE}"), rf"\1{HIDDEN}"),
    # Tokens of well-known services, by their prefixes; keys of AWS; JSON web tokens.
    (re.compile(r"\b(?:hf_|wk_|gh[opsur]_|github_pat_|glpat-|[spr]k[-_]|xox[abp]-|pypi-|AIza)[\w-]{10,}"), HIDDEN),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), HIDDEN),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), HIDDEN),
    # Home folders of any user.
    (re.compile(r"(?:/home|/Users)/[^/\s\"':;,]+"), "~"),
    (re.compile(r"(?<![\w/])/root(?=/|\b)"), "~"),
)
_LONG = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]{20,}(?![A-Za-z0-9])")
LEAST_DIGITS = 3
LEAST_CHANGES = 0.3
"""Of a random text of letters and digits, how many change from one kind to another: 0.4 to 0.6 is usual."""
_WORDS = {"cpu", "gpu", "localhost", "root"}


def keep(text: str) -> str:
    """Return the text unchanged: for a report that may contain everything."""
    return text


def hides(report: Report, host: str = "", *, everything: bool = False) -> Callable[[str], str]:
    """Return a function that hides in a text the machines' owners and possible secrets."""
    return keep if everything else hider({host, *report.hosts}, report.others)


def hider(hosts: Iterable[str], processes: Iterable[ProcessName] = ()) -> Callable[[str], str]:
    """Return a function that removes hosts, users, other people's command lines, and secrets from a text."""
    # Command lines go first: what another pattern takes out of one would keep it from being found.
    known = set(processes)
    commands = sorted({one.command for one in known if len(one.command) > 1}, key=len, reverse=True)
    users = sorted({one.user for one in known} - _WORDS - {""}, key=len, reverse=True)
    names = [*map(re.escape, commands), *(rf"(?<![\w-]){re.escape(user)}(?![\w-])" for user in users)]
    patterns = [*((re.compile(word), HIDDEN) for word in names), *_PATTERNS]
    home, user = str(Path.home()), ""
    with contextlib.suppress(OSError, KeyError):
        user = getpass.getuser()
    if home not in ("/", "/root"):
        patterns.insert(0, (re.compile(re.escape(home) + r"(?=/|\b)"), "~"))
    if user and user not in _WORDS:
        patterns.append((re.compile(rf"(?<=/){re.escape(user)}(?=/|\s|$)|\b{re.escape(user)}(?=@)"), HIDDEN))
    for host in sorted(
        {*hosts, *(host.partition(".")[0] for host in hosts)} - _WORDS - {""}, key=len, reverse=True
    ):
        patterns.append((re.compile(rf"(?<![\w-]){re.escape(host)}(?![\w-])"), HIDDEN))

    @functools.lru_cache(maxsize=100_000)  # a report says the same names and figures again and again
    def hide(text: str) -> str:
        for pattern, instead in patterns:
            text = pattern.sub(instead, text)
        return _LONG.sub(_without_key, text)

    return hide


def _without_key(word: re.Match[str]) -> str:
    kinds = [(one.isdigit(), one.isupper()) for one in word[0]]
    changes = sum(one != other for one, other in itertools.pairwise(kinds))
    random = sum(digit for digit, _ in kinds) >= LEAST_DIGITS and changes >= LEAST_CHANGES * len(kinds)
    return HIDDEN if random else word[0]


def other_processes(snapshot: Snapshot) -> set[ProcessName]:
    """Return the other processes on the GPUs of a race."""
    named = {name for state in snapshot.hosts.values() for name in state.gpu_users}
    return named | names_in(sample for state in snapshot.hosts.values() for sample in state.gpus)


def in_all(value: Any, hide: Callable[[str], str]) -> Any:  # noqa: ANN401 - what JSON can hold
    """Return a JSON value with `without` applied to every text in it, keys included."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, dict):
        return {hide(key): in_all(item, hide) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [in_all(item, hide) for item in value]
    return value
