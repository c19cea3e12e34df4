"""Reports in a real browser: headless Chromium, without a network."""

import re
import shutil
from pathlib import Path

import pytest
from support.recordings import record
from support.ui import crossover_demo, racing_demo
from support.waiting import PATIENCE_S

from tfmon.analysis.compare import compare
from tfmon.recordings.results import read_recorded
from tfmon.reports import html
from tfmon.reports.diff import describe
from tfmon.reports.secrets import keep

from .pages import data_of, page_of
from .test_html import hostile_race
from .test_sweep import TWO, swept

playwright = pytest.importorskip("playwright.sync_api")
PATIENCE_MS = 1_000 * PATIENCE_S
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=PATIENCE_MS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    """Reports of a race with a GPU, of a hostile script, of a crossover, of two races, and of sweeps."""
    folder = tmp_path_factory.mktemp("reports")
    made, script = {}, html.charts_script()
    for name, happen in (("race", racing_demo), ("hostile", hostile_race), ("crossover", crossover_demo)):
        record(folder / f"{name}.jsonl", happen)
        made[name] = folder / f"{name}.html"
        made[name].write_text(page_of(folder / f"{name}.jsonl", script), encoding="utf-8")
    for name, over in (("several", TWO), ("curve", {"batch_size": TWO["batch_size"]})):
        path = swept(folder / f"{name}.sweep", over)
        made[name] = folder / f"{name}.html"
        made[name].write_text(page_of(path, script), encoding="utf-8")
    made["pair"] = folder / "pair.html"
    pair = (read_recorded(folder / f"{name}.jsonl")[0] for name in ("race", "crossover"))
    made["pair"].write_text(html.write(describe(compare(*pair)), keep, script), encoding="utf-8")
    return made


class Opened:
    """A report that is open, and what went wrong with it."""

    def __init__(self, browser, path: Path, width: int, scheme: str) -> None:
        self.name, self.width, self.scheme = path.stem, width, scheme
        self.problems: list[str] = []
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", lambda said: self.problems.append(f"console: {said.text}"))
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        self.page.on("request", self._asked)
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-drawn]")
        self.specs = data_of(path.read_text("utf-8"), "tfmon-charts")

    def _asked(self, request) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            self.problems.append(f"request: {request.url}")

    def points(self, chart: str) -> int:
        return self.page.locator(f"#{chart} .mark-symbol path").count()

    def expected(self, chart: str, hidden: str = "") -> int:
        layers = [layer for layer in self.specs[chart]["layer"] if "layer" in layer and "data" in layer]
        rows = [row for layer in layers for row in layer["data"]["values"]]
        return sum(row.get("v") is not None and row["s"] != hidden for row in rows)


@pytest.fixture
def opened(browser, files, request):
    """The report of the race with a GPU, or another one. Nothing may go wrong with it until the test ends."""
    name, width, scheme = getattr(request, "param", ("race", 1_600, "light"))
    opened = Opened(browser, files[name], width, scheme)
    yield opened
    assert opened.problems == []
    opened.page.close()


def in_windows(*names: str) -> list[tuple[str, int, str]]:
    return [(name, *window) for name in names for window in ((400, "dark"), (1_600, "light"))]


@pytest.mark.parametrize("opened", in_windows("race", "hostile", "crossover"), indirect=True)
def test_it_opens_without_an_error_and_every_chart_has_its_points(opened):
    page = opened.page
    assert int(page.get_attribute("html", "data-drawn")) == len(opened.specs) > 3
    drawn = {chart: opened.points(chart) for chart in opened.specs if opened.expected(chart)}
    assert drawn == {chart: opened.expected(chart) for chart in drawn} and len(drawn) > 2
    assert page.title().startswith("tfmon: ")
    assert page.evaluate("document.documentElement.scrollWidth") <= opened.width
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == (opened.scheme == "dark")


@pytest.mark.parametrize("opened", in_windows("several", "curve", "pair"), indirect=True)
def test_a_sweep_opens_with_its_chart_and_a_comparison_without(opened):
    page, points = opened.page, {"several": 8, "curve": 4, "pair": 0}[opened.name]
    assert int(page.get_attribute("html", "data-drawn")) == len(opened.specs) == bool(points)
    assert page.locator(".mark-symbol path").count() == points
    assert page.evaluate("document.documentElement.scrollWidth") <= opened.width
    if points:
        page.locator("th > button", has_text="ratio").first.focus()
        page.keyboard.press("Enter")
        slowest = page.locator("table").first.locator("tbody th").first
        assert slowest.inner_text() == "16", "the slowest comes first"


def test_lanes_are_switched_and_tables_sorted_by_keyboard(opened):
    page = opened.page
    chart = next(chart for chart in opened.specs if opened.expected(chart, "G") < opened.expected(chart))
    page.focus("input[data-series=G]")
    for hidden in ("G", ""):
        page.keyboard.press("Space")
        page.wait_for_function(
            "([chart, count]) => document.querySelectorAll(`#${chart} .mark-symbol path`).length === count",
            arg=[chart, opened.expected(chart, hidden)],
        )
    button = page.locator("th > button", has_text="examples/s").first
    lanes = page.locator("table").first.locator("tbody th")
    before = lanes.all_inner_texts()
    for wanted in ("ascending", "descending"):
        button.focus()
        page.keyboard.press("Enter")
        assert button.locator("..").get_attribute("aria-sort") == wanted
        after = lanes.all_inner_texts()
        assert (after == before) == (wanted == "descending"), "the first lane is the faster one"


def test_the_pointer_reads_a_value_off(opened):
    page = opened.page
    box = page.locator("#chart-1 svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(box["x"] + box["width"] / 2 + 3, box["y"] + box["height"] / 2)
    said = page.wait_for_selector("#vg-tooltip-element.visible").inner_text()
    assert "examples/s" in said and re.search(r"\d:\d\d", said) and ("C cpu" in said or "G gpu" in said)


@pytest.mark.parametrize("opened", [("race", 1_600, "dark")], indirect=True)
def test_it_prints_in_light_colours_without_its_controls(opened):
    opened.page.emulate_media(media="print")
    assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not opened.page.locator(".controls").first.is_visible()
    assert opened.page.pdf(format="A4").startswith(b"%PDF")
