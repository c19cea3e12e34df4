"""The library that draws the charts: Vega-Lite with Vega, in one script that is written into the file.

Bokeh was tried, too. Its script takes 1,239 KiB, this one 877 KiB. It draws on a canvas, which prints as pixels
and tells screen readers nothing; Vega draws SVG, whose colours follow the page's. It depends on ten other
packages, vl-convert on none.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys

from tfmon.errors import UsageError

VEGA_LITE = "6.4"
"""Version of Vega-Lite that the charts are written for."""
_EXPORTED = "window.vegaEmbed = vegaEmbed;"


def script() -> str:
    """Return the script, which defines `vegaEmbed`; a child takes two seconds to put it together.

    Raises: UsageError where the extra `report` is not installed, or the child fails.
    """
    if importlib.util.find_spec("vl_convert") is None:
        raise UsageError(
            "an HTML report needs the extra `report`, which is not installed here",
            f"{sys.executable} -m pip install 'tfmon[report]'; --markdown needs nothing",
        )
    made = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; import {__name__} as it; it.write()"],
        capture_output=True,
        encoding="utf-8",
    )
    if made.returncode:
        reason = (made.stderr.strip().splitlines() or [f"exit code {made.returncode}"])[-1]
        raise UsageError(f"the script for the charts could not be put together: {reason}")
    return made.stdout


def write() -> None:
    """Write the script to stdout: the child's part, in a process of its own because it keeps Python's lock."""
    import vl_convert

    sys.stdout.buffer.write(vl_convert.javascript_bundle(_EXPORTED, vl_version=VEGA_LITE).encode())
