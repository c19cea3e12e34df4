"""Tables of the manual, and an example result, made by the program itself, so that they say what it does.

Each function returns Markdown. `docs/conf.py` puts them where a page says `{{ name }}`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from tfmon import errors
from tfmon.analysis.analysis import analyse
from tfmon.analysis.cause_kinds import KINDS, SUPPOSED, Remedy
from tfmon.analysis.summarise import summarise
from tfmon.api.settings import SETTINGS
from tfmon.doctor import diagnosis as doctor
from tfmon.model.knobs import COMMON, LEVERS, show
from tfmon.recordings.library import EXAMPLE
from tfmon.recordings.player import play_all
from tfmon.ui.keys import KEYS, label
from tfmon.ui.screens.help import explained_numbers

EXAMPLES = Path(__file__).parent / "_build" / "examples"
"""Files that are made for the manual, and copied beside its pages."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def keys() -> str:
    """Return every key by its purpose."""
    groups: dict[str, list[Sequence[str]]] = {}
    for key in KEYS:
        groups.setdefault(key.group, []).append((_code(label(key.keys)), _sentence(key.help), _code(key.id)))
    parts = [f"**{group}**\n\n{table(('key', 'does', 'name'), rows)}" for group, rows in groups.items()]
    return "\n\n".join(parts)


def knobs() -> str:
    """Return the knobs that a scenario can have without declaring them."""
    rows = [(f"`{one.name}`", one.allowed(), show(one.default), one.kind, _sentence(one.help)) for one in COMMON]
    return table(("knob", "values", "default", "takes effect", "what it does"), rows)


def levers() -> str:
    """Return the settings that a lane of any script may be started with."""
    rows = [(f"`{one.name}`", one.allowed(), _sentence(one.help)) for one in LEVERS]
    return table(("setting", "values", "what it does"), rows)


def settings() -> str:
    """Return every setting with its environment variable and built-in value."""
    rows = [
        (f"`{option.setting}`", f"`{option.variable}`", f"`{_toml(option.default)}`", _sentence(option.help))
        for option in SETTINGS
    ]
    return table(("in the file", "environment variable", "built in", "what it does"), rows)


def numbers() -> str:
    """Return the explanation of each number on the screen."""
    parts = []
    for heading, explained in explained_numbers():
        rows = [(f"`{name}`", _sentence(meaning)) for name, meaning in explained]
        parts.append(f"**{heading}**\n\n{table(('on the screen', 'what it is'), rows)}")
    return "\n\n".join(parts)


def exit_codes() -> str:
    """Return the exit codes."""
    rows = [
        (errors.EXIT_FINE, "fine"),
        (errors.EXIT_LANE_FAILED, "a lane failed; of `tfmon hosts`, a host cannot be used"),
        (errors.EXIT_USAGE, "wrong usage: an unknown command, option, scenario or setting"),
        (errors.EXIT_DEVICE_ABSENT, "a requested device is not there, or a host cannot be used"),
        (errors.EXIT_WORSE, "`tfmon diff`: a lane is slower, or takes more memory, than a gate allows"),
        (errors.EXIT_CANNOT_TELL, "`tfmon diff`: a gate cannot tell; `sweep`: nothing has a ratio"),
        (errors.EXIT_BUSY, "`--wait-idle`: no GPU became free in time"),
        (errors.EXIT_UNHEALTHY, "`--fail-on`: a lane has one of these"),
        (errors.EXIT_INTERRUPTED, "interrupted by a signal"),
        ("another", "the exit code of the script in the one lane; 128 and the number of the signal that ended it"),
    ]
    return table(("exit code", "meaning"), [(str(code), meaning) for code, meaning in rows])


def doctor_exit_codes() -> str:
    """Return the exit codes of `tfmon doctor`."""
    rows = [
        (doctor.EXIT_FINE, "all fine"),
        (doctor.EXIT_WARNINGS, "warnings"),
        (doctor.EXIT_NO_GPU, "no usable GPU, or wrong usage"),
        (doctor.EXIT_NO_TENSORFLOW, "TensorFlow cannot be used, or the host"),
    ]
    return table(("exit code", "meaning"), [(str(code), meaning) for code, meaning in rows])


def cause(id: str) -> str:
    """Return the fix of an observed cause, and how it is shown."""
    one = KINDS[id]
    tried = f" While it trains, `{one.knob}` tries it." if one.knob else ""
    code = (*(line for remedy in one.remedies for line in remedy.code), *one.code)
    lines = "\n".join(code).replace("{value}", show(one.values[0]) if one.values else "")
    title = one.title.replace("{subject}", "*name*")
    mends = "; ".join(filter(None, (one.mends, *(_remedy(remedy) for remedy in one.remedies))))
    block = f"\n\n```python\n{lines}\n```" if code else ""
    return f"*{title}*\n\n**What mends it**: {_sentence(mends)}.{tried}{block}"


def _remedy(remedy: Remedy) -> str:
    """Return the advice under each condition, with the condition."""
    return f"{remedy.mends} (if: {', '.join(remedy.needs)})" if remedy.mends else ""


def supposed() -> str:
    """Return the supposed cause of each bottleneck."""
    rows = [
        (kind, f"`{id}`", f"`{KINDS[id].knob}`" if KINDS[id].knob else "", _sentence(KINDS[id].mends))
        for kind, ids in SUPPOSED.items()
        for id in ids
    ]
    return table(("bottleneck", "cause", "knob", "what mends it"), rows)


def example_json() -> str:
    """Return the JSON of the example race, with one of its lanes."""
    opened, snapshot = play_all(EXAMPLE)
    result = summarise(analyse(snapshot), opened.header).to_json()
    result |= {"recording": EXAMPLE.name, "lanes": result["lanes"][1:]}
    return f"```json\n{json.dumps(result, indent=2, ensure_ascii=False)}\n```"


def example_report() -> str:
    """Write the report of the example race beside the pages, and return a link to it."""
    from tfmon.api.repeat_command import command_of
    from tfmon.reports import html
    from tfmon.reports.recorded import of_race
    from tfmon.reports.secrets import hides

    EXAMPLES.mkdir(parents=True, exist_ok=True)
    report, _ = of_race(EXAMPLE, command_of)
    page = html.write(report, hides(report), html.charts_script())
    (EXAMPLES / "example-report.html").write_text(page, encoding="utf-8")
    return '<a href="example-report.html">the report of the example race</a>'


TABLES = {
    "keys": keys,
    "knobs": knobs,
    "settings": settings,
    "numbers": numbers,
    "exit_codes": exit_codes,
    "doctor_exit_codes": doctor_exit_codes,
    **{id: functools.partial(cause, id) for id in KINDS},
    "supposed": supposed,
    "levers": levers,
    "example_json": example_json,
    "example_report": example_report,
}
"""The tables by the name that a page puts between double braces."""


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _sentence(text: str) -> str:
    """Escape what Markdown would read as markup, outside of code."""
    return text.replace("<", "&lt;").replace("*", "\\*")


def _toml(value: object) -> str:
    return json.dumps(value)
