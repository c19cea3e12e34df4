"""A profile as text and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from tfmon import units
from tfmon.analysis.compare_profiles import ProfiledSide, shortened, time_text
from tfmon.analysis.memory_peak import memory_beside, memory_cells, memory_heads, memory_lines
from tfmon.analysis.profile_json import counted
from tfmon.model.profile import Call, GpuTime, Profile, Repeat
from tfmon.model.readings import Missing, Reading
from tfmon.reports import VERDICT, Block, Lines, Note, Report, Section, Table, common_keys, text

WIDTH = 100

_MODES = {
    "graph": "tf.function",
    "xla": "compiled by XLA",
    "eager": "eager",
    "unknown": "how they ran is not known",
}
_NAME, _OPERATION = 40, 50
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
