"""A race that never was: fake controls, a clock that stands still, and sessions to draw."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from support.events import SECOND, Clock, gpu_sample
from tfmon.analysis.crossover_curve import crossover_of
from tfmon.analysis.statistics import pairs_of
from tfmon.api.program import Program
from tfmon.errors import ExperimentError, TfmonError
from tfmon.lanes.group import LaneGroup
from tfmon.model.events import HostConnected, HostLost, KnobRequested, LaneEnded, LaneStarted, LinkMeasured
from tfmon.model.knobs import BATCH_SIZE, PREFETCH, Knob, KnobValue
from tfmon.model.lane_events import (
    Built,
    KnobApplied,
    LaneFailed,
    LibrariesLoaded,
    PhaseEntered,
    SliceEnded,
    Window,
    histogram_of,
)
from tfmon.model.lane_state import HOST_LOST
from tfmon.model.ports import RunInfo, Say, Source
from tfmon.model.race import Machine, Race, ScenarioInfo
from tfmon.model.readings import HostSample, Missing, SliceLoad, TreeSample
from tfmon.model.requests import Command
from tfmon.model.series import PairMeasured, SeriesEnded, VisitBegan, VisitEnded, state_after
from tfmon.model.session import Session
from tfmon.model.spec import LaneSpec, name_lanes

GRAPH = Knob("graph", default=True, help="Train in a tf.function; off runs op by op.", kind="restart")
WIDTH = Knob("width", default=128, help="Units of the hidden layer.", kind="restart", low=1, high=4096)

GPU_MACHINE = Machine(
    hostname="node7", system="Linux", cpu_name="AMD EPYC 9554", cores=16, usable_cores=8,
    memory_bytes=128 * 2**30, gpus=("NVIDIA H200",),
)  # fmt: skip
CPU_MACHINE = replace(
    GPU_MACHINE, gpus=(), no_gpu="the NVIDIA driver is not installed (libnvidia-ml.so.1 not found)"
)


HERE = Path()
SCENARIOS = (
    ScenarioInfo(
        "small-dense", HERE, "built in", "100 features, one hidden layer, batches of 10",
        "A net so small that launching its kernels takes longer than running them.",
    ),
    ScenarioInfo(
        "large-dense", HERE, "built in", "the same net on 100,000 examples, batches of 32",
        "Enough data to measure the input pipeline.",
    ),
    ScenarioInfo(
        "conv", HERE, "built in", "a small convolutional net on 28x28 images", "Where a GPU begins to pay."
    ),
    ScenarioInfo("mine", HERE, "./mine.py", "my own net"),
)  # fmt: skip


class FakeControls:
    """Records every call, and answers a knob with KnobRequested as the lanes do."""

    race_error: Exception | None = None

    def __init__(self, session: Session, clock: Clock) -> None:
        self.session, self.clock = session, clock
        self.calls: list[tuple[object, ...]] = []

    def set_knob(self, lane: str, knob: str, value: KnobValue) -> None:
        self.calls.append(("set_knob", lane, knob, value))
        self.session.accept(
            KnobRequested(lane=lane, at_ns=self.clock(), request=len(self.calls), knob=knob, value=value)
        )

    def race(self, scenario: str) -> None:
        self.calls.append(("race", scenario))
        if self.race_error is not None:
            raise self.race_error

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return what records a call that has no effect; lists of lanes become tuples."""
        if name not in dir(LaneGroup):
            raise AttributeError(name)

        def record(*given: object) -> None:
            self.calls.append((name, *(tuple(one) if isinstance(one, list) else one for one in given)))

        return record


class Refusing:
    """Records every call; a change fails where `refusal` says why."""

    refusal = ""
    error: type[TfmonError] = TfmonError

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def _change(self, *call: object) -> None:
        self.calls.append(call)
        if self.refusal:
            raise self.error(self.refusal)


class FakeExperiments(Refusing):
    error = ExperimentError

    def start_crossover(self, knob: str, low: float | None = None, high: float | None = None) -> None:
        self._change("start_crossover", knob, low, high)

    def start_tuning(self, lane: str, *, everything: bool) -> None:
        self._change("start_tuning", lane, everything)

    def undo(self) -> str:
        self._change("undo")
        return "prefetch auto"

    def stop(self) -> None:
        self.calls.append(("stop",))


RUNS = (
    RunInfo(
        "20260101-030405-conv", "/runs/1", started="2026-01-01T03:04:05+01:00", scenario="conv",
        lanes=("cpu", "gpu:0"), verdict="gpu:0 is 3.1× faster than cpu (95 % CI 3.0 to 3.2)", seconds=40.0,
        bytes=2**20,
    ),
    RunInfo(
        "20260102-030405-mine", "/runs/2", started="2026-01-02T03:04:05+01:00", scenario="mine.py",
        lanes=("cpu",), seconds=3.0, bytes=2**18,
        failure="A failed: ValueError: the labels have the shape (32, 10), which is not that of the predictions, "
        "(32, 12)",
    ),
    RunInfo(
        "20260103-030405-conv", "/runs/3", started="2026-01-03T03:04:05+01:00", scenario="conv",
        lanes=("cpu", "gpu:0"), verdict="gpu:0 is 4.0× faster than cpu (95 % CI 3.9 to 4.1)", seconds=95.0,
        bytes=2**21,
    ),
    RunInfo("20260104-030405-small-dense", "/runs/4", scenario="small-dense", running=True),
)  # fmt: skip


class FakeRuns(Refusing):
    """Answers as the recordings do."""

    def __init__(self, runs: Sequence[RunInfo] = RUNS, opened: Any = None) -> None:
        super().__init__()
        self.runs, self.opened = list(runs), opened

    def list(self) -> Sequence[RunInfo]:
        return self.runs

    def delete(self, id: str) -> None:
        self._change("delete", id)
        self.runs = [run for run in self.runs if run.id != id]

    def report(self, path: str) -> str:
        self._change("report", path)
        return "saved race.html"

    def replay(self, id: str) -> Any:
        self._change("replay", id)
        return self.opened


WINDOWS_A_SLICE = 3


class Demo:
    """A session with a script: each method lets something happen."""

    def __init__(
        self,
        specs: Sequence[LaneSpec] = (LaneSpec("cpu"), LaneSpec("gpu:0")),
        machine: Machine = GPU_MACHINE,
        knobs: tuple[Knob, ...] = (BATCH_SIZE, PREFETCH, GRAPH, WIDTH),
        mode: str = "concurrent",
    ) -> None:
        self.clock = Clock()
        self.session = Session(machine, self.clock)
        self.specs = name_lanes(specs)
        race = Race(scenario="small-dense", title="100 features, one hidden layer", mode=mode, knobs=knobs)
        self.session.begin(race, self.specs)
        self.controls = FakeControls(self.session, self.clock)
        self.experiments = FakeExperiments()
        self.settings: dict[str, dict[str, KnobValue]] = {}
        self.steps: dict[str, int] = {}
        self.waits = 0.2
        """Share of the time that the lanes wait for their input."""
        self.ticks = 0
        self.round = 0
        for pid, spec in enumerate(self.specs, 4_000):
            started: dict[str, KnobValue] = {"batch_size": 10, "prefetch": "off", **spec.settings}
            self.session.accept(LaneStarted(lane=spec.name, at_ns=self.clock(), pid=pid, settings=started))

    @property
    def names(self) -> list[str]:
        return [spec.name for spec in self.specs]

    def spec(self, lane: str) -> LaneSpec:
        return next(spec for spec in self.specs if spec.name == lane)

    def enter(self, lane: str, phase: str) -> None:
        self.session.accept(PhaseEntered(lane=lane, at_ns=self.clock(), phase=phase))

    def equip(self, lane: str) -> None:
        indexes = self.spec(lane).indexes
        self.session.accept(
            LibrariesLoaded(
                lane=lane, at_ns=self.clock(), tensorflow="2.21.0", keras="3.14.0", numpy="2.2.0",
                device_name=f"{len(indexes)}x NVIDIA H200".removeprefix("1x ") if indexes else "AMD EPYC 9554",
                gpu_uuids=self.gpu_uuids(indexes),
            )
        )  # fmt: skip

    def gpu_uuids(self, indexes: tuple[int, ...]) -> tuple[str, ...]:
        return ("GPU-1",) if indexes else ()

    def build(self, lane: str, **settings: KnobValue) -> None:
        own = self.spec(lane).settings
        values: dict[str, KnobValue] = {"batch_size": 10, "prefetch": "off", **own, **settings}
        self.settings[lane] = values
        self.session.accept(
            Built(lane=lane, at_ns=self.clock(), parameters=14_218, examples=1_000, settings=values)
        )

    def enter_all(self, phase: str) -> None:
        for name in self.names:
            self.enter(name, phase)

    def go(self) -> "Demo":
        """All lanes are equipped, built and get the start signal."""
        self.clock.ahead(4)
        for name in self.names:
            if not self.session.snapshot().lane(name).over:
                self.equip(name)
                self.build(name)
                self.enter(name, "racing")
        self.session.start_clock(self.clock())
        return self

    def train(
        self,
        lane: str,
        speed: float,
        step_ms: float,
        at_ns: int,
        marks: tuple[str, ...] = (),
        turn: int | None = None,
        loss: float | None = None,
    ) -> None:
        """One window of a fifth of a second, up to `at_ns`."""
        batch, gpu = self.settings[lane]["batch_size"], self.spec(lane).kind == "gpu"
        assert isinstance(batch, int)
        steps = max(1, round(speed * 0.2 / batch))
        self.steps[lane] = self.steps.get(lane, 0) + steps
        spread = [step_ms * 1e6 * (1 + 0.6 * (place / 50) ** 6) for place in range(50)]
        done, waits_ns = self.steps[lane], round(self.waits * SECOND / 5)
        self.session.accept(
            Window(
                lane=lane, at_ns=at_ns, span_ns=SECOND // 5, steps=steps, examples=steps * batch, step=done,
                input_ns=waits_ns, call_ns=SECOND // 7 + SECOND // 25 - waits_ns,
                sync_ns=SECOND // 500, report_ns=SECOND // 1_000,
                longest_ns=round(spread[-1]), computing_share=0.44, sampled=1,
                sampled_call_ns=round(step_ms * 3e5),
                sampled_tail_ns=round(step_ms * 5e5) if gpu else 10_000,
                sampled_copy_ns=round(step_ms * 1e5) if gpu else None,
                histogram=histogram_of(spread),
                loss=1.9 + 0.4 * math.exp(-done / 3_000) if loss is None else loss,
                settings=self.settings[lane], marks=marks, round=turn,
                gpu_memory_allocated_bytes=38 * 2**20 if gpu else None,
                gpu_memory_peak_bytes=51 * 2**20 if gpu else None,
            )
        )  # fmt: skip

    def sample(self, cpu_pct: Sequence[float] = (212, 104)) -> None:
        for place, name in enumerate(self.names):
            self.session.accept(
                TreeSample(
                    lane=name, at_ns=self.clock(), cpu_pct=cpu_pct[place % len(cpu_pct)],
                    private_bytes=(301 + 311 * place) * 2.0**20, processes=2,
                    pids=(4_000 + place,),
                )
            )  # fmt: skip
        self.sample_gpus()

    def sample_gpus(self) -> None:
        for host in dict.fromkeys(spec.host for spec in self.specs if spec.kind == "gpu"):
            self.session.accept(
                gpu_sample(
                    "GPU-1", host=host, at_ns=self.clock(), name="NVIDIA H200", busy_pct=6.0,
                    used_bytes=1.2 * 2**30, total_bytes=139.0 * 2**30, power_w=118.0,
                    power_limit_w=700.0, temperature_c=Missing("not read"), used_by_pid={4_001: 612 * 2**20},
                )
            )  # fmt: skip

    def race(self, seconds: float, speeds: Sequence[float] = (7_663, 2_420), wobble: float = 0.02) -> "Demo":
        """Train every living lane for a while, in windows of a fifth of a second."""
        in_turns = self.session.snapshot().race.mode == "turns"
        for tick in range(round(seconds * 5)):
            self.clock.ahead(0.2)
            for place, name in enumerate(self.names):
                if self.session.snapshot().lane(name).phase != "racing":
                    continue
                if in_turns and name not in self._whose_turn():
                    continue
                speed = speeds[place % len(speeds)] * (1 + wobble * math.sin(tick * 0.9 + place * 2))
                batch = self.settings[name]["batch_size"]
                assert isinstance(batch, int)
                marks = ("warm-up",) if self.steps.get(name, 0) == 0 else ()
                self.train(name, speed, batch / speed * 1e3, self.clock(), marks, self.round if in_turns else None)
                if in_turns and self.ticks % WINDOWS_A_SLICE == WINDOWS_A_SLICE - 1:
                    load = SliceLoad(span_ns=1, examples=batch, cpu_ns=1)
                    self.session.accept(SliceEnded(lane=name, at_ns=self.clock(), round=self.round, load=load))
            self.ticks += 1
        self.sample()
        return self

    def _whose_turn(self) -> list[str]:
        """A slice has three windows; on each machine the order turns round with every round."""
        of_machines: dict[str, list[str]] = {}
        for spec in self.specs:
            of_machines.setdefault(spec.host, []).append(spec.name)
        slices = max(map(len, of_machines.values()))
        self.round, place = divmod(self.ticks // WINDOWS_A_SLICE, slices)
        self.round += 1
        orders = [names if self.round % 2 else names[::-1] for names in of_machines.values()]
        first, *beside = [names[place] for names in orders if place < len(names)]
        self.session.grant_slice(first, beside)
        return [first, *beside]

    def ask(self, lane: str, knob: str, value: KnobValue) -> int:
        self.controls.set_knob(lane, knob, value)
        return len(self.controls.calls)

    def apply(self, lane: str, knob: str, value: KnobValue, request: int = 1) -> None:
        self.settings[lane] = {**self.settings[lane], knob: value}
        self.session.accept(
            KnobApplied(
                lane=lane, at_ns=self.clock(), request=request, knob=knob, value=value,
                step=self.steps.get(lane, 0) + 1, gap_ns=4_000_000,
            )
        )  # fmt: skip

    def fail(
        self,
        lane: str,
        message: str = "no module named 'keras_hub'",
        hint: str = "pip install keras-hub",
        kind: str = "scenario",
    ) -> None:
        self.session.accept(LaneFailed(lane=lane, at_ns=self.clock(), kind=kind, message=message, hint=hint))
        tail = (
            "2026-01-01 I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow binary is optimized.",
            "Traceback (most recent call last):",
            '  File "mine.py", line 12, in build',
            "    import keras_hub [bold]not markup[/bold]",
            "ModuleNotFoundError: No module named 'keras_hub'",
        )
        self.session.accept(
            LaneEnded(lane=lane, at_ns=self.clock(), exit_code=1, signal=None, requested=False, output_tail=tail)
        )


def racing_demo(machine: Machine = GPU_MACHINE, mode: str = "turns") -> Demo:
    """Return a race in its 42nd second, with one knob changed on the way."""
    specs = [LaneSpec("cpu"), LaneSpec("gpu:0")]
    if machine.no_gpu:
        specs = [LaneSpec("cpu", {"prefetch": "off"}), LaneSpec("cpu", {"prefetch": "auto"})]
    demo = Demo(specs, machine, mode=mode).go().race(22, (6_200, 1_900))
    for name in demo.names:
        demo.apply(name, "batch_size", 20)
    demo.race(20)
    return demo


HOSTS = {
    "gpu2": replace(
        GPU_MACHINE, hostname="gpu2.lab", cpu_name="Intel Xeon Platinum 8480", cores=112, usable_cores=32,
        boot="boot-2", python="3.12.3", tensorflow="2.21.0", driver="580.65",
    ),
    "me@gpu3": replace(
        GPU_MACHINE, hostname="gpu3.lab", cores=64, usable_cores=64, gpus=("NVIDIA A100", "NVIDIA A100"),
        boot="boot-3", python="3.11.2", tensorflow="2.20.0", driver="550.54",
    ),
}  # fmt: skip
"""Other machines, by their names in the user's configuration."""
REMOTE = (LaneSpec("cpu"), LaneSpec("gpu:0", host="gpu2"), LaneSpec("gpu:1", {"batch_size": 256}, host="me@gpu3"))


def connect(demo: Demo, host: str, machine: Machine | None = None) -> None:
    at_ns = demo.clock()
    demo.session.accept(HostConnected(at_ns=at_ns, host=host, machine=machine or HOSTS[host]))
    demo.session.accept(
        LinkMeasured(
            at_ns=at_ns, host=host, round_trip_ns=512_000, offset_ns=-3_600 * SECOND - 33_000, error_ns=41_000,
            agent_cpu_pct=0.7, agent_bytes=8.2 * 2**20,
        )
    )  # fmt: skip


def sample_hosts(demo: Demo) -> None:
    for place, host in enumerate(dict.fromkeys(spec.host for spec in demo.specs)):
        demo.session.accept(
            HostSample(
                host=host, at_ns=demo.clock(), cpu_pct=310.0 + 100 * place, memory_used_bytes=9 * 2.0**30,
                memory_total_bytes=128 * 2.0**30, usable_cores=8.0, monitor_cpu_pct=1.2,
                others_cpu_pct=40.0 * place, steal_pct=0.0,
            )
        )  # fmt: skip


def hosts_demo(mode: str = "turns", specs: Sequence[LaneSpec] = REMOTE) -> Demo:
    """Return a race over three machines in its 30th second."""
    demo = Demo(specs, mode=mode)
    for host in HOSTS:
        connect(demo, host)
    demo.go()
    for _ in range(30):
        demo.race(1, (2_420, 7_663, 30_400))
        sample_hosts(demo)
    return demo


def lose(demo: Demo, host: str, reason: str = "the connection was closed") -> None:
    demo.session.accept(HostLost(at_ns=demo.clock(), host=host, reason=reason))
    for spec in demo.specs:
        if spec.host == host:
            demo.fail(spec.name, f"{host} is lost: {reason}", "", HOST_LOST)


def crossover_demo(at: KnobValue | None = None) -> Demo:
    """Return a race whose lanes were measured over batch sizes, with the lead changing between 32 and 64."""
    values = (8, 16, 32, 64, 128, 256)
    demo = Demo(mode="turns").go()
    state = crossover_of("batch_size", ("cpu", "gpu:0"), values)
    for number, value in enumerate(values[:-1]):
        for name in demo.names:
            demo.apply(name, "batch_size", value)
        demo.race(9.6, (6_000 + value, 150 * value), wobble=0.08)
        lanes = ([part for part in lane.slices if part.load] for lane in demo.session.snapshot().lanes)
        for pair in pairs_of(*lanes):
            state = state_after(state, PairMeasured(number, replace(pair, visit=1), 1.2))
    state = state_after(state, VisitEnded(5, refused="not possible here", took_s=31.5))
    state = state_after(state, SeriesEnded() if at is None else VisitBegan(values.index(at), ""))
    demo.session.advance_series(state)
    return demo


class DemoSource(Source):
    """A demo on the screen. It carries out requests as a runner does, with fake lanes."""

    def __init__(
        self,
        demo: Demo,
        *,
        start: Callable[[Say], object] = str,
        examine: Callable[[], str] = str,
        profile: Callable[..., str] = str,
        **replaced: Any,
    ) -> None:
        """Show a demo; `replaced` has other attributes and methods of the source, by their names."""
        self.lanes, self.experiments, self.start = demo.controls, demo.experiments, start
        self.profiles = SimpleNamespace(of_lanes=lambda lanes: profile(*lanes))
        self.repeat = self.watch_gpus = str
        self.examine, self.snapshot = examine, demo.session.snapshot
        vars(self).update(replaced)

    snapshot: Any = None  # see `__init__`

    def scenarios(self) -> Sequence[ScenarioInfo]:
        return SCENARIOS

    def send(self, command: Command) -> None:
        self.ask(command)

    def ask(self, command: Command, timeout_s: float | None = None) -> str:
        return Program.perform(self, command)

    def stop(self) -> None:
        self.lanes.stop()
