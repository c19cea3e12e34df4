"""Writes a report as an HTML file that needs no network.

Vega-Lite with Vega (877 KiB, included) draws the charts. Bokeh's script is larger, and screen readers cannot read
its canvas.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tfmon.errors import UsageError
from tfmon.reports import Chart, Report
from tfmon.reports.charts import COLOURS, Spec
from tfmon.reports.secrets import HIDDEN, in_all, keep
from tfmon.version import __version__

VEGA_LITE = "6.4"


def charts_script() -> str:
    """Return the script that defines `vegaEmbed`; raises UsageError."""
    if importlib.util.find_spec("vl_convert") is None:
        raise UsageError(
            "an HTML report needs the extra `report`, which is not installed here",
            f"{sys.executable} -m pip install 'tfmon[report]'; --markdown needs nothing",
        )
    code = f"import sys; sys.path[:] = {sys.path!r}; import {__name__} as it; it.write_charts_script()"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False)
    if made.returncode:
        reason = (made.stderr.strip().splitlines() or [f"exit code {made.returncode}"])[-1]
        raise UsageError(f"the script for the charts could not be put together: {reason}")
    return made.stdout


def write_charts_script() -> None:
    """Write the script, in a process because the call does not release the GIL."""
    import vl_convert

    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
    sys.stdout.buffer.write(script.encode())


def write(report: Report, hide: Callable[[str], str], script: str) -> str:
    """Return the HTML file."""
    scripts = [script.replace("</script", "<\\/script"), _read("page.js")]
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    charts: dict[str, Spec] = {}

    def keep_chart(name: str, chart: Chart) -> str:
        charts[name] = in_all(chart.spec, hide)
        return name

    return render(
        "page.html",
        hide,
        report=report,
        hashes=hashes,
        version=__version__,
        style=_read("page.css"),
        colours=COLOURS,
        charts=charts,
        keep=keep_chart,
        shown=json.dumps(report.data, indent=1, allow_nan=False, ensure_ascii=False),
        date=time.strftime("%Y-%m-%d"),
        hidden="" if hide is keep else HIDDEN,
        data=in_all(report.data, hide),
        scripts=scripts,
    )


def render(template: str, hide: Callable[[str], str] = keep, **values: object) -> str:
    """Fill a template in; `hide` and escaping apply to each text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    page = Environment(
        loader=PackageLoader(__name__, ""),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else hide(str(value)),
    )
    page.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    page.filters["kind"] = lambda block: type(block).__name__
    page.filters["indented"] = lambda text: len(text) - len(text.lstrip())
    return page.get_template(template).render(values)


def _read(name: str) -> str:
    return (Path(__file__).parent / name).read_text("utf-8")
