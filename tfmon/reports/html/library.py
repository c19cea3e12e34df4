"""The library that draws the charts: Vega-Lite with Vega, in one script that is written into the file.

Bokeh was tried, too. Its script takes 1,239 KiB, this one 877 KiB. It draws on a canvas, which prints as pixels
and tells screen readers nothing; Vega draws SVG, whose colours follow the page's. It depends on ten other
packages, vl-convert on none.
"""

from __future__ import annotations

import sys

from tfmon.errors import UsageError

VEGA_LITE = "6.4"
"""Version of Vega-Lite that the charts are written for."""
_EXPORTED = "window.vegaEmbed = vegaEmbed;"


def script() -> str:
    """Return the script, which defines `vegaEmbed`; takes two seconds.

    Raises: UsageError where the extra `report` is not installed.
    """
    try:
        import vl_convert
    except ImportError:
        raise UsageError(
            "an HTML report needs the extra `report`, which is not installed here",
            f"{sys.executable} -m pip install 'tfmon[report]'; --markdown needs nothing",
        ) from None
    return vl_convert.javascript_bundle(_EXPORTED, vl_version=VEGA_LITE)
