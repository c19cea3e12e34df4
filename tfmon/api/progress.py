"""How a race that Python began goes, told where somebody reads it: in a notebook, or on a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from tfmon.api.arguments import refuse
from tfmon.runner.headless import show_progress

Tell = Callable[[str], None]


@contextlib.contextmanager
def teller(progress: bool | Tell) -> Iterator[Tell | None]:
    """Return the function to call with a progress line once a second, which clears it at the end; None for none.

    Args:
        progress: Whether to show it in a notebook or on a terminal, or what to call with each line.
    """
    if not isinstance(progress, bool) and not callable(progress):
        refuse("progress", progress, "it is True or False, or a function that takes each line")
    if progress is False:
        yield None
    elif callable(progress):
        yield progress
    elif (display := _notebook()) is not None:
        with _cell(display) as tell:
            yield tell
    elif sys.stderr is not None and sys.stderr.isatty():
        try:
            yield show_progress
        finally:
            show_progress("")
    else:
        yield None


def _notebook() -> Any:  # noqa: ANN401 - IPython need not be there
    """Return the function that shows output below a cell; None outside of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None or getattr(shell, "kernel", None) is None:
        return None
    import IPython.display

    return IPython.display.display


@contextlib.contextmanager
def _cell(display: Any) -> Iterator[Tell]:  # noqa: ANN401
    """Show lines in one place below the cell, each over the one before."""
    place = display({"text/plain": "the race begins …"}, raw=True, display_id=True)
    try:
        yield lambda text: place.update({"text/plain": text}, raw=True)
    finally:
        place.update({"text/plain": ""}, raw=True)
