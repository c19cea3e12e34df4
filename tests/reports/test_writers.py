"""Each form writes each kind of block."""

from tfmon.reports import VERDICT, Chart, Code, Item, Items, Lines, Note, Report, Section, Table, html
from tfmon.reports.secrets import HIDDEN

from .pages import NO_SCRIPT, data_of, visible

TABLE = Table(
    [["lane", "rate", "more"], ["a_b", "7", "<x>"], ["  c", "8", "*y*"]],
    "of lanes",
    left=(0, 2),
    values=[[None, 7.0, None], [None, 8.0, None]],
    marked=(2,),
    brief=(0, 1),
)
FOLDED = Table([["time", "A"], ["0:01", "folded 5"]], folded="as a table")
CHART = Chart(
    "Curve", "what it shows", {"mark": "secret"}, Table([["knob", "A"], ["16", "9"]]), drawn=["|  A", "| A"]
)
ITEMS = Items([Item("! bad", "Driver", "none found", ("fix: get one",), "broken"), Item("ok", "Python", "3.12")])
REPORT = Report(
    "Two <lanes>",
    [
        Section("Result", (TABLE, None, Lines(["first\nline", "second"]), Lines([]))),
        Section("Empty", (None, Lines([]))),
        Section("Checks", (ITEMS, Code("a = `b`"))),
        Section("Long", (Note("long story"), CHART, FOLDED), long=True),
    ],
    [Note("A is faster", VERDICT), Note("on secret")],
    "2026-01-02",
    keys=[("A", "A cpu")],
    data={"host": "secret"},
)


def hide(told: str) -> str:
    return told.replace("secret", HIDDEN)


def test_html_has_every_block_and_hides_in_all_of_it():
    page = html.write(REPORT, hide, NO_SCRIPT)
    assert "secret" not in page and data_of(page, "tfmon-result") == {"host": HIDDEN}
    assert data_of(page, "tfmon-charts") == {"chart-1": {"mark": HIDDEN}}
    assert '<p class="verdict">A is faster</p>' in page and "<h1>Two &lt;lanes&gt;</h1>" in page
    assert page.count("<h2>") == 4, "Result, Checks, Long, For programs"
    assert '<td class="number" data-value="7">7</td>' in page and '<tr class="differs">' in page
    assert '<button type="button">rate</button>' in page and "<caption>of lanes</caption>" in page
    assert '<dt><span class="label">! bad</span> <strong>Driver</strong></dt><dd>none found</dd>' in page
    assert "<pre>a = `b`</pre>" in page and "<details><summary>as a table</summary>" in page
    assert '<div id="chart-1" class="chart"></div>' in page and 'data-series="A"' in page
    assert "A cpu" in visible(page)
