"""Draw `docs/race.svg`: the first seconds of the example race, as a picture that moves.

    python docs/moving.py

Frames are the race screen at moments of the recording, drawn as `docs/picture.py` draws one. A row that several
frames share is written once. Only CSS moves it, so it moves where a page shows it as an image, and stands still on
its last frame for readers who prefer that.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from tfmon.recordings.library import EXAMPLE
from tfmon.recordings.player import Player
from tfmon.recordings.reader import Recording
from tfmon.ui.app import MonitorApp

_SPEC = importlib.util.spec_from_file_location("picture", Path(__file__).with_name("picture.py"))
assert _SPEC is not None and _SPEC.loader is not None
picture = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(picture)

MOVING = Path(__file__).with_name("race.svg")
FRAMES = 24
SHOWN_S, LAST_S = 0.7, 4.0
"""How long a frame is shown, and the last one."""
LARGEST_BYTES = 2 * 2**20


def main() -> None:
    """Write the picture."""
    text = draw(asyncio.run(frames_of_example()))
    if len(text.encode()) > LARGEST_BYTES:
        raise SystemExit(f"{MOVING.name} has {len(text.encode())} bytes, more than {LARGEST_BYTES}")
    MOVING.write_text(text, "utf-8")


async def frames_of_example() -> list[Any]:
    """Return the rows of the race screen at moments that are evenly spread over the recording."""
    frames = []
    with Recording(EXAMPLE) as recording:
        times = recording.times_ns
        player = Player(recording)
        app = MonitorApp(picture.Race(player), characters="braille")
        async with app.run_test(size=picture.SIZE) as pilot:
            for frame in range(1, FRAMES + 1):
                player.go_to(times[0] + (times[-1] - times[0]) * frame // (FRAMES + 1))
                app.monitor.pull()
                await pilot.pause()
                frames.append(picture.rows_on(app.screen))
    return frames


def draw(frames: list[Any]) -> str:
    """Return the picture of the frames."""
    still = picture.draw(frames[-1])
    root, frame = still.splitlines()[0], still.partition("</desc>\n")[2].splitlines()[:2]
    background = picture._colour(frames[-1][0][0].style, "bgcolor", "#121212")
    total_s = SHOWN_S * (len(frames) - 1) + LAST_S
    styles, parts = [], []
    for place, spans in enumerate(_rows(frames, background)):
        for number, (first, after, shapes) in enumerate(spans):
            if (first, after) == (0, len(frames)):
                parts += shapes
                continue
            name = f"r{place}-{number}"
            begin, end = (100 * SHOWN_S * at / total_s for at in (first, after))
            end = 100.0 if after == len(frames) else end
            before = "" if first == 0 else f"0%{{visibility:hidden}}{begin:.3f}%{{visibility:visible}}"
            later = "" if end == 100 else f"{end:.3f}%{{visibility:hidden}}100%{{visibility:hidden}}"
            start = "0%{visibility:visible}" if first == 0 else ""
            styles.append(f"@keyframes {name}{{{start}{before}{later}}}")
            styles.append(f"#{name}{{visibility:hidden;animation:{name} {total_s:g}s step-end infinite}}")
            passing = "" if after == len(frames) else ' class="passing"'
            parts.append(f'<g id="{name}"{passing}>{"".join(shapes)}</g>')
    calm = (
        "@media (prefers-reduced-motion){g[id]{animation:none!important;visibility:visible!important}"
        ".passing{display:none}}"
    )
    css = f"<style>{''.join(styles)}{calm}</style>"
    title = f"<title>{escape('tfmon, the example recording')} (sha256 {picture.digest()})</title>"
    return "\n".join([root, title, css, *frame, *parts, "</g>", "</svg>", ""])


def _rows(frames: list[Any], background: str) -> Iterator[list[tuple[int, int, list[str]]]]:
    """Yield for each row its content: the first frame, the one after the last, and the shapes."""
    for y in range(picture.SIZE[1]):
        spans: list[tuple[int, int, list[str]]] = []
        for number, rows in enumerate(frames):
            shapes, x = [], 0
            for segment in rows[y]:
                shapes += picture._segment(segment, x * picture.CELL_W, y * picture.CELL_H, background)
                x += segment.cell_length
            if spans and spans[-1][2] == shapes:
                spans[-1] = (spans[-1][0], number + 1, shapes)
            else:
                spans.append((number, number + 1, shapes))
        yield spans


if __name__ == "__main__":
    main()
