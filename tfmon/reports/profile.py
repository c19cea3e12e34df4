"""A profile as plain values, and as a table for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from textwrap import wrap
from typing import Any

from tfmon import units
from tfmon.model.profile import Call, GpuTime, Op, Profile, Repeat
from tfmon.model.readings import Missing, Reading
from tfmon.reports import head

WIDTH = 100

_MODES = {
    "graph": "tf.function",
    "xla": "tf.function compiled by XLA",
    "eager": "eager",
    "unknown": "how they ran is not known",
}
_NAME, _TIME, _SHARE = 42, 12, 8


def to_json(profile: Profile) -> dict[str, Any]:
    """Return a profile as plain values, by the names of `tfmon.model.profile`.

    Units are in the names; times are means a step. What is not known is None, and named under `missing` with
    the reason.
    """
    missing: dict[str, str] = {}
    plain = _plain(profile, "", missing)
    return {**head(), **plain, "missing": missing}


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
        return [_plain(one, f"{path}.{index}", missing) for index, one in enumerate(value)]
    return dict(value) if isinstance(value, dict) else value


def to_text(profile: Profile) -> str:
    """Return a profile as a table of plain text, at most 100 columns wide."""
    parts = (_head, _split, _devices, _input, _ops, _repeats, _notes)
    return "\n".join(_cut(line, WIDTH).rstrip() for part in parts for line in part(profile))


def _head(profile: Profile) -> Iterator[str]:
    step, longest = _time(profile.step_ns), _time(profile.longest_ns)
    yield f"{profile.steps} steps of {step} (the longest {longest}), {_MODES[profile.mode]}"
    bottleneck = profile.bottleneck
    if isinstance(bottleneck, Missing):
        yield from wrap(f"bottleneck: {units.absent(bottleneck)}", WIDTH)
    else:
        yield from wrap(bottleneck.text, WIDTH)


def _split(profile: Profile) -> Iterator[str]:
    yield from _title("the loop's thread")
    yield _row(profile, "input wait", profile.input.wait_ns)
    call = profile.call
    if isinstance(call, Missing):
        yield _row(profile, "step", call)
    else:
        yield from _call(profile, call)
    if profile.devices:
        yield _row(profile, "waiting for the GPU elsewhere", profile.sync_ns)
    yield _row(profile, "other", profile.other_ns)
    if profile.drain_ns:
        yield _row(profile, "after the last step", profile.drain_ns)


def _call(profile: Profile, call: Call) -> Iterator[str]:
    yield _row(profile, "step" if profile.mode == "eager" else "step call", call.total_ns)
    if not isinstance(call.compute_ns, Missing):
        yield _row(profile, "  operations ran", call.compute_ns)
    yield _row(profile, "  dispatch", call.dispatch_ns)
    yield _row(profile, "    of it Python", call.python_ns)
    for name, time_ns in (("  tracing", call.tracing_ns), ("  compiling (XLA)", call.compile_ns)):
        if time_ns:
            yield _row(profile, name, time_ns)


def _devices(profile: Profile) -> Iterator[str]:
    for device in profile.devices:
        yield from _title(device.name)
        yield from _device(profile, device)


def _device(profile: Profile, device: GpuTime) -> Iterator[str]:
    def copied(amount: Reading) -> str:
        return units.reading(amount, units.memory) + (" a step" if not isinstance(amount, Missing) else "")

    yield _row(profile, "kernels", device.kernels_ns)
    if device.all_reduce_ns:
        yield _row(profile, "  of it all-reduce only", device.all_reduce_ns)
    yield _row(profile, "copies from the host", device.h2d_ns, copied(device.h2d_bytes))
    yield _row(profile, "  that no kernel hid", device.h2d_exposed_ns)
    yield _row(profile, "copies to the host", device.d2h_ns, copied(device.d2h_bytes))
    yield _row(profile, "  that nothing hid", device.d2h_exposed_ns)
    yield _row(profile, "idle", device.idle_ns)
    yield _row(profile, "  the loop waited for input", device.idle_input_ns)
    yield _row(profile, "  the loop called the step", device.idle_launch_ns)
    if device.idle_tracing_ns:
        yield _row(profile, "  the loop traced or compiled", device.idle_tracing_ns)
    yield _row(profile, "  the loop did something else", device.idle_other_ns)


def _input(profile: Profile) -> Iterator[str]:
    if not profile.input.stages:
        return
    yield from _title("work of the input pipeline, on all threads")
    for stage in profile.input.stages:
        yield _stage(stage.name, stage.busy_ns, f"{stage.elements:.3g} a step")
    if not isinstance(profile.input.python_ns, Missing):
        yield _stage("Python functions in these", profile.input.python_ns)


def _ops(profile: Profile) -> Iterator[str]:
    yield from _title("operations of the step, by their own time")
    ops = profile.ops
    if isinstance(ops, Missing):
        yield f"  {units.absent(ops)}"
        return
    for op in ops.top:
        name = op.name if op.name.startswith(op.kind) else f"{op.kind} {_site(op)}"
        runs = f"{op.count / profile.steps:.3g}/step"
        cells = f"{op.device:>8}{runs:>12}{_share(op.share):>8}{_time(op.self_ns):>12}"
        yield f"  {_cut(name, 50):<50}{cells}"
    yield f"  {f'all {units.count(ops.runs)} that the trace shows':<50}{'':28}{_time(ops.time_ns):>12}"
    if not isinstance(ops.parallelism, Missing) and ops.parallelism >= 1.05:
        yield f"  {ops.parallelism:.2g} operations in parallel on average, while any ran"


def _site(op: Op) -> str:
    """Return where in the model an operation is, without the part of its name that its type tells."""
    return "/".join(op.name.split("/")[:-1]) or op.name


def _repeats(profile: Profile) -> Iterator[str]:
    found = [("traced", one) for one in profile.retraces] + [("compiled", one) for one in profile.compiles]
    if found:
        yield from _title("built again during the capture")
        for what, one in found:
            yield f"  {_repeat(what, one)}"


def _repeat(what: str, one: Repeat) -> str:
    cost = units.reading(one.cost_ns, lambda value: f"{_time(value)} each")
    return f"{_cut(one.function, 40)} was {what} {one.count} times, {cost}".replace(" 1 times", " once")


def _notes(profile: Profile) -> Iterator[str]:
    for note in profile.notes:
        yield ""
        yield from wrap(note, WIDTH)


def _title(text: str) -> list[str]:
    return ["", text]


def _row(profile: Profile, name: str, time_ns: Reading, note: str = "") -> str:
    label = f"  {_cut(name, _NAME - 2)}"
    if isinstance(time_ns, Missing):
        return f"{label:<{_NAME}}{units.absent(time_ns)}"
    cells = f"{label:<{_NAME}}{_time(time_ns):>{_TIME}}{_share(time_ns / profile.step_ns):>{_SHARE}}"
    return f"{cells}  {note}"


def _stage(name: str, time_ns: float, note: str = "") -> str:
    return f"  {_cut(name, _NAME - 2):<{_NAME - 2}}{_time(time_ns):>{_TIME}}{note:>{_SHARE + 12}}"


def _time(value_ns: float) -> str:
    return units.milliseconds(value_ns / 1e6)


def _share(value: float) -> str:
    return units.percent(100 * value)


def _cut(text: str, width: int) -> str:
    """Shorten a text in its middle: both ends of an operation's name tell something."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[-tail:]}"
