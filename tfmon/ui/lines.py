"""A widget that displays rows, and a screen with their styles."""

from __future__ import annotations

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

from tfmon.ui.render.rows import BLANK, Row
from tfmon.ui.render.style import LINK
from tfmon.ui.terminal import Guarded

_STEP = "step_knob("
_RIGHT_BUTTON = 3
_BOLD = Style(bold=True)


class StyledScreen(Guarded, Screen[ScreenResultType]):
    """A screen with a component class such as `row--dim` for each style."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"row--{name}" for name in ("text", "dim", "strong", "warn", "trouble")),
        *(f"row--lane{number}{variant}" for number in range(4) for variant in ("", "-faint")),
    }
    DEFAULT_CSS = """
    StyledScreen {
        background: $background;
        & > .row--text { color: $foreground; }
        & > .row--dim { color: $text-muted; }
        & > .row--strong { color: $foreground; text-style: bold; }
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

    def __init__(self) -> None:
        super().__init__()
        self._styles: dict[str, Style] = {}

    def notify_style_update(self) -> None:
        """Forget the styles of another theme."""
        super().notify_style_update()
        self._styles = {}

    def style_of(self, name: str) -> Style:
        """Return a style such as "lane0.strong" or "strong@help" (a link)."""
        style_name, _, action = name.partition(LINK)
        style = self._styles.get(style_name)
        if style is None:
            base, _, variant = style_name.partition(".")
            component = f"row--{base}-faint" if variant == "faint" else f"row--{base}"
            # A new page has no styles yet.
            style = self.get_component_rich_style(component, default=Style.null())
            style = self._styles[style_name] = style + _BOLD if variant == "strong" else style
        return style + Style(meta={"@click": action}) if action else style


class CharacterFilter(LineFilter):
    """Replaces characters by others of the same width."""

    def __init__(self, translate: Callable[[str], str]) -> None:
        super().__init__()
        self._translate = translate

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Translate the segments of a line."""
        return [Segment(self._translate(text), style, control) for text, style, control in segments]


class Lines(Guarded, ScrollView, can_focus=False):
    """Displays rows, and draws only changed rows."""

    DEFAULT_CSS = "Lines { width: 100%; height: auto; overflow: hidden; }"

    def __init__(self, *, classes: str | None = None) -> None:
        super().__init__(classes=classes)
        self.auto_links = False
        self.rows: tuple[Row, ...] = ()

    def show(self, rows: Sequence[Row]) -> None:
        """Display other rows."""
        old, self.rows = self.rows, tuple(rows)
        self.virtual_size = Size(0, len(self.rows))
        top, (width, height) = self.scroll_offset.y, self.size
        pairs = zip_longest(self.rows[top : top + height], old[top : top + height])
        if changed := [Region(0, y, width, 1) for y, (row, before) in enumerate(pairs) if row != before]:
            self.refresh(*changed)

    def on_unmount(self) -> None:
        """Free the lines that Textual 8.2 keeps for removed widgets."""
        self.refresh()

    def notify_style_update(self) -> None:
        """Draw all rows with another theme."""
        super().notify_style_update()
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return lines for Textual. What is the same for all is looked up once."""
        self._style_of = cast("StyledScreen[object]", self.screen).style_of
        self._top, self._width = self.scroll_offset.y, self.size.width
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        """Return a line for Textual."""
        style_of, y = self._style_of, y + self._top
        row = self.rows[y] if y < len(self.rows) else BLANK
        strip = Strip([Segment(text, style_of(name)) for text, name in row])
        return strip.adjust_cell_length(self._width, style_of("text"))

    async def on_click(self, event: events.Click) -> None:
        """Step a knob back with the right button. A double click must not answer the question that it asks."""
        action = event.style.meta.get("@click", "")
        if event.button == _RIGHT_BUTTON:
            await self._step(event, -1)
        elif event.chain > 1 and action and _STEP not in action:
            event.prevent_default()
            event.stop()

    async def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Decrease the knob below the mouse."""
        await self._step(event, -1)

    async def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Increase the knob below the mouse."""
        await self._step(event, 1)

    async def _step(self, event: events.MouseEvent, direction: int) -> None:
        action = event.style.meta.get("@click", "")
        if _STEP in action:
            event.prevent_default()
            event.stop()
            await self.run_action(action.replace(", 1)", f", {direction})"))
