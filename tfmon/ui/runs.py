"""Updates of the terminal that begin at the first changed cell."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.control import Control
from textual._compositor import ChopsUpdate


def narrowed(update: RenderableType | None) -> RenderableType | None:
    """Return a partial update in the form that begins at the changed cells; any other one as it is."""
    if type(update) is ChopsUpdate:
        return RunsUpdate(update.chops, update.spans, update.chop_ends)
    return update


class RunsUpdate(ChopsUpdate):
    """Writes only the cells of the changed runs.

    Source: Textual's `ChopsUpdate.render_segments` begins each run at the left edge of its widget, which on a
    widget as wide as the screen repaints most of a line to change one figure.
    """

    def render_segments(self, console: Console) -> str:
        """Return the escape sequences and text that bring the terminal up to date."""
        out: list[str] = []
        for y, first, last in self.spans:
            for end, (start, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                if strip is None or start >= last or end <= first:
                    continue
                begin, stop = max(start, first), min(end, last)
                out.append(str(Control.move_to(begin, y)))
                out.append(strip.crop(begin - start, stop - start).render(console))
        return "".join(out)
