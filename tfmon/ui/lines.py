"""A widget that shows rows, and the screen with their styles."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import ClassVar, cast

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.color import Color
from textual.filter import LineFilter
from textual.geometry import Region, Size
from textual.screen import Screen, ScreenResultType
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tfmon.ui.messages import KnobStepped
from tfmon.ui.render.rows import BLANK, Row, cell_len
from tfmon.ui.render.style import LINK
from tfmon.ui.terminal import Guarded

_STEP = re.compile(r"step_knob\('(\w+)', 1\)")
"""Link that a right click and the wheel also step."""
_RIGHT_BUTTON = 3
_BOLD = Style(bold=True)


class StyledScreen(Guarded, Screen[ScreenResultType]):
    """A screen with a component class for each style: `row--dim`."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"row--{name}" for name in ("text", "dim", "strong", "key", "warn", "trouble")),
        *(f"row--lane{number}{variant}" for number in range(4) for variant in ("", "-faint")),
    }
    DEFAULT_CSS = """
    StyledScreen {
        background: $background;
        & > .row--text { color: $foreground; }
        & > .row--dim { color: $text-muted; }
        & > .row--strong, & > .row--key { color: $foreground; text-style: bold; }
        & > .row--warn { color: $warn; }
        & > .row--trouble { color: $trouble; }
    }
    StyledScreen:ansi > .row--dim { color: ansi_default; text-style: dim; }
    """ + "".join(
        f"""
    StyledScreen > .row--lane{lane} {{ color: $lane-{lane}; }}
    StyledScreen > .row--lane{lane}-faint {{ color: $lane-{lane} 50%; }}
    StyledScreen:ansi > .row--lane{lane}-faint {{ color: ansi_default; text-style: dim; }}
    """
        for lane in range(4)
    )

    def style_of(self, name: str) -> Style:
        """Return a style such as "lane0.strong" (bold) or "key@help" (a link)."""
        look, _, action = name.partition(LINK)
        base, _, variant = look.partition(".")
        component = f"row--{base}-faint" if variant == "faint" else f"row--{base}"
        # A page that is being made has no styles yet.
        style = self.get_component_rich_style(component, default=Style.null())
        if variant == "strong":
            style += _BOLD
        return style + Style(meta={"@click": action}) if action else style


class CharacterFilter(LineFilter):
    """Draws everything with other characters, cell for cell."""

    def __init__(self, translate: Callable[[str], str]) -> None:
        super().__init__()
        self._translate = translate

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments of a line with other characters."""
        return [Segment(self._translate(text), style, control) for text, style, control in segments]


class Lines(Guarded, ScrollView, can_focus=False):
    """Shows rows. Only the changed part of a row is drawn again."""

    DEFAULT_CSS = "Lines { width: 100%; height: auto; overflow: hidden; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.auto_links = False
        self.rows: tuple[Row, ...] = ()
        self._clicked_at: tuple[float, float] = (-1, -1)

    def show(self, rows: Sequence[Row]) -> None:
        """Show these rows."""
        old, self.rows = self.rows, tuple(rows)
        if len(old) != len(self.rows):
            self.virtual_size = Size(0, len(self.rows))
        top = self.scroll_offset.y
        for y in range(top, top + self.size.height):
            first, last = changed_cells(*(shown[y] if y < len(shown) else BLANK for shown in (old, self.rows)))
            if first < last:
                self.refresh(Region(first, y - top, last - first, 1))

    def on_unmount(self) -> None:
        """Free the lines that Textual 8.2 keeps of removed widgets."""
        self.refresh()

    def notify_style_update(self) -> None:
        """Draw all rows in the colours of another theme."""
        super().notify_style_update()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return a line of the widget, for Textual."""
        style_of = cast("StyledScreen[object]", self.screen).style_of
        y += self.scroll_offset.y
        row = self.rows[y] if y < len(self.rows) else BLANK
        strip = Strip([Segment(text, style_of(name)) for text, name in row])
        return strip.adjust_cell_length(self.size.width, style_of("text"))

    def on_click(self, event: events.Click) -> None:
        """Step a knob back with the right button. A double click must not answer its own question."""
        at = (event.screen_x, event.screen_y)
        again, self._clicked_at = event.chain > 1 and at == self._clicked_at, at
        action = str(event.style.meta.get("@click", ""))
        repeats = again and action != "" and not _STEP.search(action)
        if repeats or (event.button == _RIGHT_BUTTON and self._step(event, -1)):
            event.prevent_default()
            event.stop()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Step the knob under the mouse down."""
        if self._step(event, -1):
            event.stop()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Step the knob under the mouse up."""
        if self._step(event, 1):
            event.stop()

    def _step(self, event: events.MouseEvent, direction: int) -> bool:
        knob = _STEP.search(str(event.style.meta.get("@click", "")))
        if knob is not None:
            self.post_message(KnobStepped(knob[1], direction))
        return knob is not None


def changed_cells(before: Row, after: Row) -> tuple[int, int]:
    """Return the first cell that differs and the one after the last."""
    if before is after:
        return 0, 0
    first = 0
    for old, new in zip_longest(before, after):
        if old != new:
            if old and new and old[1] == new[1]:
                first += _shared_cells(old[0], new[0])
            break
        first += cell_len(new[0])
    else:
        return 0, 0
    widths = [sum(cell_len(text) for text, _ in row) for row in (before, after)]
    last = max(widths)
    if widths[0] == widths[1]:
        for old, new in zip(reversed(before), reversed(after), strict=False):
            if old != new:
                if old[1] == new[1]:
                    last -= _shared_cells(old[0][::-1], new[0][::-1])
                break
            last -= cell_len(new[0])
    return first, max(first, last)


def _shared_cells(one: str, other: str) -> int:
    count = next((at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right), None)
    return cell_len(one[: min(len(one), len(other)) if count is None else count])
