"""A profile as text and JSON, and the comparison of two profiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from tfmon import units
from tfmon.analysis.compare_profiles import (
    GROUPINGS,
    Grouping,
    ProfiledSide,
    compare,
    heads,
    sentences,
    share_text,
    shortened,
    signed,
    time_text,
)
from tfmon.analysis.memory_peak import memory_beside, memory_cells, memory_heads, memory_lines
from tfmon.analysis.profile_json import counted, notes
from tfmon.analysis.profile_json import to_json as diff_json
from tfmon.model.profile import Call, GpuTime, Profile, Repeat
from tfmon.model.readings import Missing, Reading
from tfmon.reports import VERDICT, Block, Chart, Lines, Note, Report, Section, Table, charts, common_keys, text

WIDTH = 100

_MODES = {
    "graph": "tf.function",
    "xla": "compiled by XLA",
    "eager": "eager",
    "unknown": "how they ran is not known",
}
_NAME, _OPERATION, _PART = 40, 50, 34
MOST_LAYERS = 10


def to_json(profile: Profile) -> dict[str, Any]:
    """Return a profile as JSON. Unknown figures are under `missing`."""
    missing: dict[str, str] = {}
    plain = _plain(profile, "", missing)
    return {**common_keys(), **plain, "missing": missing}


def _plain(value: Any, path: str, missing: dict[str, str]) -> Any:  # noqa: ANN401 - any part of a profile
    if isinstance(value, Missing):
        missing[path] = value.reason
        return None
    if is_dataclass(value):
        prefix = f"{path}." if path else ""
        return {
            part.name: _plain(getattr(value, part.name), f"{prefix}{part.name}", missing) for part in fields(value)
        }
    if isinstance(value, tuple):
        return [_plain(element, f"{path}.{index}", missing) for index, element in enumerate(value)]
    return dict(value) if isinstance(value, dict) else value


def to_text(profile: Profile) -> str:
    """Return a profile as plain text."""
    return text.write(describe(profile), width=WIDTH)


def describe(profile: Profile) -> Report:
    """Return the parts of a step."""
    step, longest = time_text(profile.step_ns), time_text(profile.longest_ns)
    bottleneck = profile.bottleneck
    limit = f"bottleneck: {units.absent(bottleneck)}" if isinstance(bottleneck, Missing) else bottleneck.text
    repeats = [*_repeats("traced", profile.retraces), *_repeats("compiled", profile.compiles)]
    return Report(
        "Profile",
        [
            _split("the loop's thread", profile, _loop(profile)),
            *(_split(device.name, profile, _device(device)) for device in profile.devices),
            Section("work of the input pipeline, on all threads", (_input(profile),)),
            Section("operations of the step, by their own time", list(_operations(profile))),
            memory_section((ProfiledSide("memory", "", (profile,)),)),
            Section("built again during the capture", (Lines(repeats),)),
            *(Section("", (Note(note),)) for note in profile.notes),
        ],
        [
            Note(f"{profile.steps} steps of {step} (the longest {longest}), {_MODES[profile.mode]}"),
            Note(limit, VERDICT),
            *map(Note, counted(profile)),
        ],
    )


def memory_section(sides: Sequence[ProfiledSide], heading: str = "memory at its peak, by layer") -> Section:
    """Return the parts of each side's memory peak."""
    alone, beside = len(sides) == 1, memory_beside(sides)
    rows = [[*memory_heads(sides), *(["most of it in"] if alone else [])]]
    for parts in beside[:MOST_LAYERS]:
        rows.append([*memory_cells(parts), *(part.largest for part in parts if alone and part is not None)])
    lines = [line for side in sides for line in memory_lines(side, "" if alone else f"{side.id}: ")]
    table = Table(rows, left=(0, 3)[: 1 + alone]) if beside else None
    return Section(heading, (Lines(lines), table))


Share = tuple[str, Reading, str]
"""Name, nanoseconds, note."""


def _split(heading: str, profile: Profile, parts: Iterable[Share]) -> Section:
    rows, reasons = [["", "", "", ""]], []
    for name, time_ns, note in parts:
        if isinstance(time_ns, Missing):
            rows.append([shortened(name, _NAME), "n/a", "", ""])
            reasons.append(f"{name.strip()}: {units.absent(time_ns)}")
        else:
            share = units.percent(100 * time_ns / profile.step_ns)
            rows.append([shortened(name, _NAME), time_text(time_ns), share, note])
    return Section(heading, (Table(rows, left=(0, 3)), Lines(reasons)))


def _loop(profile: Profile) -> Iterator[Share]:
    yield "input wait", profile.input.wait_ns, ""
    call = profile.call
    if isinstance(call, Missing):
        yield "step", call, ""
    else:
        yield from _call(profile, call)
    if profile.devices:
        yield "waiting for the GPU, outside", profile.sync_ns, ""
    yield "other", profile.other_ns, ""
    if profile.drain_ns:
        yield "after the last step", profile.drain_ns, ""


def _call(profile: Profile, call: Call) -> Iterator[Share]:
    yield "step" if profile.mode == "eager" else "step call", call.total_ns, ""
    if not isinstance(call.compute_ns, Missing):
        yield "  operations ran", call.compute_ns, ""
    yield "  dispatch", call.dispatch_ns, ""
    yield "    of it Python", call.python_ns, ""
    for name, time_ns in (("  tracing", call.tracing_ns), ("  compiling (XLA)", call.compile_ns)):
        if time_ns:
            yield name, time_ns, ""


def _device(device: GpuTime) -> Iterator[Share]:
    def copied(amount: Reading) -> str:
        return units.reading(amount, units.memory) + (" a step" if not isinstance(amount, Missing) else "")

    yield "kernels", device.kernels_ns, ""
    if device.all_reduce_ns:
        yield "  of it all-reduce only", device.all_reduce_ns, ""
    yield "copies from the host", device.h2d_ns, copied(device.h2d_bytes)
    yield "  that no kernel hid", device.h2d_exposed_ns, ""
    yield "copies to the host", device.d2h_ns, copied(device.d2h_bytes)
    yield "  that nothing hid", device.d2h_exposed_ns, ""
    yield "idle", device.idle_ns, ""
    yield "  the loop waited for input", device.idle_input_ns, ""
    yield "  the loop called the step", device.idle_launch_ns, ""
    if device.idle_tracing_ns:
        yield "  the loop traced or compiled", device.idle_tracing_ns, ""
    yield "  the loop did something else", device.idle_other_ns, ""


def _input(profile: Profile) -> Table | None:
    rows = [
        [shortened(stage.name, _NAME), time_text(stage.busy_ns), f"{stage.elements:.3g} a step"]
        for stage in profile.input.stages
    ]
    if rows and not isinstance(profile.input.python_ns, Missing):
        rows.append(["Python functions in these", time_text(profile.input.python_ns), ""])
    return Table([["", "", ""], *rows]) if rows else None


def _operations(profile: Profile) -> Iterator[Block]:
    ops = profile.ops
    if isinstance(ops, Missing):
        yield Note(units.absent(ops))
        return
    rows = [["operation", "device", "runs", "share", "own time"]]
    for op in ops.top:
        name = op.name
        if not name.startswith(op.kind):
            name = f"{op.kind} {name.rpartition('/')[0] or name}"
        runs, share = f"{op.count / profile.steps:.3g}/step", units.percent(100 * op.share)
        rows.append([shortened(name, _OPERATION), op.device, runs, share, time_text(op.self_ns)])
    rows.append([f"all {units.count(ops.runs)} that the trace shows", "", "", "", time_text(ops.time_ns)])
    yield Table(rows, left=(0, 1))
    if not isinstance(ops.parallelism, Missing) and ops.parallelism >= 1.05:
        yield Note(f"{ops.parallelism:.2g} operations in parallel on average, while any ran")


def _repeats(verb: str, repeats: Iterable[Repeat]) -> Iterator[str]:
    for repeat in repeats:
        cost = units.reading(repeat.cost_ns, lambda value: f"{time_text(value)} each")
        times = "once" if repeat.count == 1 else f"{repeat.count} times"
        yield f"{shortened(repeat.function, _NAME)} was {verb} {times}, {cost}"


MOST_ROWS = {"operation": 20, "kind": 10, "layer": 10}
MOST_BARS = 12
HEADINGS: dict[Grouping, str] = {
    "operation": "by operation",
    "kind": "by the type of the operation",
    "layer": "by layer, with its gradient",
}


def diff_to_text(first: ProfiledSide, second: ProfiledSide) -> str:
    """Return the comparison as plain text."""
    return text.write(describe_diff(first, second), width=WIDTH)


def describe_diff(first: ProfiledSide, second: ProfiledSide, *, page: bool = False) -> Report:
    """Return the explanation of a longer step, with a chart for a page."""
    answer, *more = answers(first, second)
    chart = replace(_diff_chart(first, second), table=None) if page else None
    return Report(
        f"Two profiles: {first.title} and {second.title}",
        [Section("", (chart,))]
        + [Section(HEADINGS[by], (_diff_table(first, second, by),)) for by in GROUPINGS]
        + [memory_section((first, second)), Section("", (Lines(notes(first, second)),))],
        [Note(answer, VERDICT), *map(Note, more)],
        data={**common_keys(), **diff_json(first, second)},
    )


def diff_section(first: ProfiledSide, second: ProfiledSide) -> Section:
    """Return the explanation for a race's report."""
    chart = _diff_chart(first, second)
    lines = Lines([*answers(first, second), *notes(first, second)])
    return Section("What explains the difference", (lines, chart), long=True)


def answers(first: ProfiledSide, second: ProfiledSide) -> list[str]:
    """Return how much longer a step takes, and why."""
    names = [side.id if side.title in ("", side.id) else f"{side.id} ({side.title})" for side in (first, second)]
    return sentences(compare(first.profiles, second.profiles), names[0], names[1])


def _diff_table(first: ProfiledSide, second: ProfiledSide, by: Grouping) -> Table:
    diff = compare(first.profiles, second.profiles, by)
    most = MOST_ROWS[by]
    shown, rest = diff.rows[:most], diff.rows[most:]
    rows = [heads(by, first.id, second.id), *(row.cells(_PART) for row in shown)]
    if rest:
        left = sum(row.first.step_ns for row in rest if row.first is not None)
        right = sum(row.second.step_ns for row in rest if row.second is not None)
        share = share_text((right - left) / diff.difference.value_ns) if diff.explained else ""
        name = f"{len(rest)} smaller differences"
        rows.append([name, time_text(left), time_text(right), signed(right - left), "", share, "", ""])
    whole = [time_text(diff.first_ns), time_text(diff.second_ns), *diff.difference.texts]
    rows.append(["a step", *whole, share_text(1.0) if diff.explained else "", "", ""])
    return Table(rows, left=(0, 7), marked=(len(rows) - 1,))


def _diff_chart(first: ProfiledSide, second: ProfiledSide) -> Chart:
    diff = compare(first.profiles, second.profiles)
    bars: dict[str, charts.Difference] = {}
    for row in diff.rows[:MOST_BARS]:
        name = row.label(_PART)
        name = name if name not in bars else f"{name} ({len(bars)})"
        note = " ".join(filter(None, (row.difference.texts[0], row.cells(_PART)[5])))
        bars[name] = (name, row.difference.value_ns, row.difference.ci95_ns, note)
    about = f"Right: {second.id} takes longer; left: {first.id} does. Thin lines are 95 % intervals."
    title = "What explains the difference of a step"
    spec = charts.diverging([*bars.values()], f"ms a step, {second.id} less {first.id}", f"{title}. {about}")
    return Chart(title, about, spec, _diff_table(first, second, "operation"))
