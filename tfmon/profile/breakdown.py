"""Computes the parts of the captured steps from a trace."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tfmon.analysis.bottleneck_rules import Shares, find_kinds, sentence
from tfmon.model.profile import (
    NO_MEMORY,
    BottleneckKind,
    Call,
    Input,
    Mode,
    Op,
    Ops,
    Profile,
    ProfileBottleneck,
    Repeat,
)
from tfmon.model.readings import Missing, Reading, known
from tfmon.profile import gpu_trace, loop_thread, operations
from tfmon.profile.gpu_trace import GpuTrace
from tfmon.profile.loop_thread import FunctionBuild, LoopThread
from tfmon.profile.memory import memory_peaks
from tfmon.profile.operations import OpRun, executed
from tfmon.profile.parts import LONGEST_NAME, parts_of
from tfmon.profile.trace import STEP, Space, Times, TraceError, everything, read_space, write_chrome

TOP = 10

NO_STEP = Missing("no tf.function and no operation is in the trace")
NO_GPU_EVENTS = Missing("the GPU left nothing in the trace")
UNTOLD = Missing("the bottleneck of a GPU lane is unknown without its GPU")
NO_BATCH = Missing("the trace does not show the loop taking a batch")
NO_PYTHON = Missing("the trace shows no Python function in the input pipeline")
NO_RUNTIME = Missing("the trace does not show TensorFlow's runtime apart from Python")
WAITS_IN_STEP = Missing("on the CPU the loop waits for results in the step itself")
WAITS_UNSEEN = Missing("without a tf.function, waiting for results cannot be told from the step")


def read_profile(
    path: Path, *, on_gpu: bool = False, note: str = "", chrome: str = "", marker: str = STEP
) -> Profile:
    """Return the profile in a `.xplane.pb` file, also written to `chrome`; raises TraceError."""
    space = read_space(path, everything if chrome else operations.tells)
    result, unwritten = profile_of(space, on_gpu=on_gpu, marker=marker, parts=True), ""
    if chrome:
        try:
            write_chrome(space, Path(chrome))
        except TraceError as error:
            unwritten = f"There is no whole trace for Chrome: {error.message}."
    return replace(result, notes=tuple(filter(None, (note, unwritten, *result.notes))))


def profile_of(space: Space, *, on_gpu: bool = False, marker: str = STEP, parts: bool = False) -> Profile:
    """Return the profile of the captured steps; with `parts`, also all parts and memory.

    Args:
        on_gpu: The lane's GPU may leave nothing in the trace (Apple's plugin).
        marker: Name of the step markers, or empty for the most frequent one.

    Raises: TraceError if no step is marked.
    """
    gpus = gpu_trace.read(space)
    loop = loop_thread.find(space, marker, max((run.end_ps for gpu in gpus for run in gpu.runs), default=0))
    steps = len(loop.steps)
    lines = loop_thread.host_lines(space)
    cpu = executed(lines, loop)
    host_only = on_gpu and not gpus
    devices = tuple(sorted((gpu_trace.busy(gpu, loop) for gpu in gpus), key=lambda device: -device.kernels_ns))
    runs = [run for gpu in gpus for run in gpu.kernels] if gpus else cpu.step
    sync_ns, other_ns = _rest(loop, gpus, host_only)
    starts = sorted(build.span[0] for build in (*loop.tracings, *loop.compilings))
    working = [run for gpu in gpus for run in gpu.runs] if gpus else [] if on_gpu else runs
    profile = Profile(
        steps=steps,
        step_ns=loop.per_step(loop.window),
        longest_ns=max(end - start for start, end in loop.steps) / 1000,
        mode=_mode(loop),
        input=Input(
            wait_ns=loop.per_step(loop.input) if loop.input else NO_BATCH,
            stages=operations.stages(lines, loop.window[0], cpu.functions, steps),
            python_ns=NO_PYTHON if cpu.python_ps is None else cpu.python_ps / 1000 / steps,
        ),
        call=_call(loop, None if gpus or on_gpu else cpu.step),
        sync_ns=sync_ns,
        other_ns=other_ns,
        drain_ns=loop.per_step(_drain(loop)),
        devices=devices,
        ops=NO_GPU_EVENTS if host_only else _ops(runs, loop),
        retraced_steps=sum(bisect_left(starts, start) < bisect_left(starts, end) for start, end in loop.steps),
        retraces=_repeats(loop.tracings),
        compiles=_repeats(loop.compilings),
        bottleneck=UNTOLD,
        host_only=host_only,
        notes=_notes(space, len(devices), host_only),
        parts=parts_of(working, loop, _drain(loop), gpu_trace.pending(space, gpus)) if parts else (),
        memory=memory_peaks(space, loop, on_gpu=on_gpu or bool(gpus)) if parts else NO_MEMORY,
    )
    return replace(profile, bottleneck=_bottleneck(profile))


def _mode(loop: LoopThread) -> Mode:
    if not loop.known:
        return "unknown"
    return "eager" if loop.eager else "xla" if loop.xla else "graph"


def _call(loop: LoopThread, runs: Sequence[OpRun] | None) -> Call | Missing:
    """`runs` are the operations on the CPU, or `None` on another device."""
    if not loop.known:
        return NO_STEP
    per_step = loop.per_step
    compute = loop.calls & Times(run.span for run in runs or ())
    tracing = loop.traced - compute
    compiling = loop.compiled - compute - tracing
    dispatch = loop.calls - compute - tracing - compiling
    return Call(
        total_ns=per_step(loop.calls),
        dispatch_ns=per_step(dispatch),
        python_ns=per_step(dispatch - loop.runtime) if loop.runtime else NO_RUNTIME,
        compute_ns=Missing("the step runs on the GPU") if runs is None else per_step(compute),
        tracing_ns=per_step(tracing),
        compile_ns=per_step(compiling),
    )


def _rest(loop: LoopThread, gpus: Sequence[GpuTrace], host_only: bool) -> tuple[Reading, float]:
    """Return the loop's other time, with and without work on a GPU."""
    rest = loop.window - _drain(loop) - loop.input - loop.calls
    if not gpus:
        return (NO_GPU_EVENTS if host_only else WAITS_IN_STEP), loop.per_step(rest)
    if loop.eager:
        return WAITS_UNSEEN, loop.per_step(rest)
    working = Times(run.span for gpu in gpus for run in gpu.runs)
    return loop.per_step(rest & working), loop.per_step(rest - working)


def _drain(loop: LoopThread) -> Times:
    return Times([(max(end for _, end in loop.steps), loop.window[0][1])]) - loop.input - loop.calls


def _ops(runs: Sequence[OpRun], loop: LoopThread) -> Ops | Missing:
    steps = len(loop.steps)
    window = loop.window[0]
    inside = [run for run in runs if run.start_ps < window[1] and run.end_ps > window[0]]
    self_ps = sum(run.self_ps for run in inside)
    busy_ps = (Times(run.span for run in inside) & loop.window).total
    if not self_ps or not busy_ps:
        return Missing("the trace shows no operation of the step")
    sums: dict[tuple[str, str, str], tuple[int, int]] = {}
    for run in inside:
        key = (run.name, run.type, run.device)
        count, spent = sums.get(key, (0, 0))
        sums[key] = count + 1, spent + run.self_ps
    ranked = sorted(sums.items(), key=lambda item: (-item[1][1], item[0]))
    top = tuple(
        Op(name[:LONGEST_NAME], kind[:LONGEST_NAME], device, count, spent / 1000 / steps, spent / self_ps)
        for (name, kind, device), (count, spent) in ranked[:TOP]
    )
    return Ops(top, len(inside), self_ps / 1000 / steps, busy_ps / 1000 / steps, self_ps / busy_ps)


def _repeats(builds: Sequence[FunctionBuild]) -> tuple[Repeat, ...]:
    repeats = []
    for function in dict.fromkeys(build.function for build in builds):
        costs = [build.cost_ps for build in builds if build.function == function]
        known = [cost for cost in costs if cost]
        cost_ns = sum(known) / len(known) / 1000 if known else Missing("the trace does not show its cost")
        repeats.append(Repeat(function, len(costs), cost_ns))
    return tuple(sorted(repeats, key=lambda repeat: (-repeat.count, repeat.function)))


_PHRASES: Mapping[BottleneckKind, str] = {
    "compute": "running operations",
    "input": "waiting for the next batch",
    "dispatch": "calling the step while nothing is computed",
    "eager": "starting operations one by one from Python",
    "transfer": "copying between host and device while nothing else runs",
    "all-reduce": "adding gradients up over the GPUs while nothing is computed",
    "sync": "waiting for the device outside of the step",
    "other": "what the loop does outside of pipeline and step",
}


def _bottleneck(profile: Profile) -> ProfileBottleneck | Missing:
    call = profile.call
    if profile.host_only and not profile.retraced_steps:
        return UNTOLD
    if isinstance(call, Missing) and not profile.devices:
        return call
    of_step = _shares_of(profile)
    kinds = find_kinds(of_step)
    if kinds[0] == "retracing":
        text = f"retracing: {profile.retraced_steps} of {profile.steps} steps traced or compiled again"
    else:
        text = sentence(kinds, of_step, _PHRASES)
    dispatch: BottleneckKind = "eager" if of_step.eager else "dispatch"
    parts: tuple[BottleneckKind, ...] = ("compute", "input", dispatch, "transfer", "other", "retracing")
    parts = (*parts, "all-reduce") if len(profile.devices) > 1 else parts
    shares: dict[str, float] = {kind: of_step.share(kind) / 100 for kind in parts}
    return ProfileBottleneck(kinds[0] if len(kinds) == 1 else "mixed", text, shares)


def _shares_of(profile: Profile) -> Shares:
    """Return the parts of the step; the loop's work splits a GPU's idle time."""

    def share(*times_ns: Reading) -> float:
        return 100 * sum(known(time_ns) or 0.0 for time_ns in times_ns) / profile.step_ns

    if profile.devices:
        device = profile.devices[0]
        parts = {
            "device": share(device.kernels_ns - device.all_reduce_ns),
            "input": share(device.idle_input_ns),
            "all_reduce": share(device.all_reduce_ns),
            "dispatch": share(device.idle_launch_ns),
            "other": share(device.idle_other_ns),
            "copy": share(device.h2d_exposed_ns, device.d2h_exposed_ns),
            "retrace": share(device.idle_tracing_ns),
        }
    else:
        call = profile.call
        assert isinstance(call, Call)
        parts = {
            "device": share(call.compute_ns),
            "input": share(profile.input.wait_ns),
            "dispatch": share(call.dispatch_ns),
            "other": share(profile.other_ns),
            "copy": 0.0,
            "retrace": share(call.tracing_ns, call.compile_ns),
        }
    return Shares(
        **{f"{name}_pct": part for name, part in parts.items()},
        step_pct=parts["dispatch"] + parts["device"],
        reading_pct=share(profile.sync_ns),
        retraced_steps_pct=100 * profile.retraced_steps / profile.steps,
        eager=profile.mode == "eager",
    )


def _notes(space: Space, gpus: int, host_only: bool) -> tuple[str, ...]:
    notes = []
    if host_only:
        notes.append(
            "The GPU left nothing in the trace, so only the host's side is known. TensorFlow's plugin for Apple's "
            "GPU records nothing; on NVIDIA's, the profiling library CUPTI may be missing or not allowed."
        )
    if gpus > 1:
        notes.append(f"The trace has {gpus} GPUs; the bottleneck is that of the busiest.")
    return (*notes, *(f"The profiler said: {trouble}" for trouble in space.troubles))
