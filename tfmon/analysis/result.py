"""The result of a race, computed once from an analysis.

All formats have its fields. An unknown figure is `None`, and `missing` has the reason.
"""

from __future__ import annotations

import html
import json
import os
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tfmon import units
from tfmon.analysis.causes import Cause
from tfmon.analysis.health import Concern, Waits
from tfmon.analysis.intervals import Center
from tfmon.analysis.others import GpuOthers
from tfmon.analysis.run_account import Account
from tfmon.analysis.verdict import Verdict, ahead
from tfmon.errors import TfmonError, UsageError
from tfmon.model import codec
from tfmon.model.events import LinkMeasured
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.folder_views import View
from tfmon.model.header import JSON_SCHEMA
from tfmon.model.knobs import KnobValue
from tfmon.model.lane_relations import Collision
from tfmon.model.race import BetweenProcesses, Machine
from tfmon.model.readings import Estimate
from tfmon.model.spec import LaneSpec
from tfmon.version import __version__

if TYPE_CHECKING:
    from pandas import DataFrame

Interval: TypeAlias = tuple[float, float]
State: TypeAlias = Literal["finished", "failed", "absent"]
HERE = "here"
HISTORY_HEADS = ("time", "change", "examples/s", "effect", "pairs", "verdict from then on")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostResult:
    """Another machine of the race."""

    machine: Machine
    lost: str | None
    round_trip_ms: float | None
    clock_offset_ms: float | None
    clock_error_ms: float | None
    agent_cpu_pct: float | None
    agent_bytes: float | None


def link_figures(link: LinkMeasured | None) -> dict[str, float | None]:
    """Return the round trip of a connection and its clock's offset."""
    times_ns = (link.round_trip_ns, link.offset_ns, link.error_ns) if link else (None, None, None)
    names = ("round_trip_ms", "clock_offset_ms", "clock_error_ms")
    return {name: None if time is None else time / 1e6 for name, time in zip(names, times_ns, strict=True)}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuResult:
    """A GPU at its last sample."""

    index: int
    uuid: str
    name: str
    busy_pct: float | None
    lane_busy_pct: float | None
    used_bytes: float | None
    lane_used_bytes: float | None
    lane_used_source: str | None
    total_bytes: float | None
    power_w: float | None
    activity: dict[str, float | None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FitResult:
    """Progress of the last Keras `fit`."""

    epoch: int | None
    epochs: int | None
    batch: int | None
    batches: int | None
    metrics: dict[str, float | None]
    validation_s: float
    between_epochs_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneResult:
    """The result of one lane."""

    id: str
    """One letter, which never changes."""
    name: str
    """The device, and the settings in which the lanes differ."""
    label: str
    """The name in tables."""
    host: str
    device: str
    """Such as `cpu` or `2xcpu`."""
    device_chosen: str | None
    """Why this GPU was chosen."""
    device_name: str | None
    state: State
    error: str | None
    hint: str
    """What to do about the error."""
    output: tuple[str, ...]
    """The last lines of a failed lane."""
    ended_early: str
    """When the lane ended, if before its first step."""
    command: str
    """The command of a script."""
    step: str | None
    """What counts as a step of a script."""
    fit: FitResult | None
    knobs: dict[str, KnobValue]
    """Every knob at the end."""
    defaults: dict[str, str]
    """Values that a script did not set."""
    versions: dict[str, str | None]
    disturbed_by: tuple[str, ...]
    """Differences of the lane's environment."""
    source: str | None
    """Digest of the scenario's file."""
    steps: int | None
    measured_steps: int | None
    examples: int | None
    examples_per_s: float | None
    examples_per_s_ci95: Interval | None
    log_examples_per_s: Center | None
    """Mean logarithm of examples/s, for comparisons."""
    steps_per_s: float | None
    step_ms: dict[str, float | None]
    """Time of a step: `p50`, `p95`, `p99`."""
    loss: dict[str, float | None]
    """`first` and `last`."""
    private_bytes: int | None
    peak_private_bytes: int | None
    peak_private_bytes_by_phase: dict[str, int]
    cpu_pct: float | None
    gpu_busy_pct: float | None
    gpu_memory_used_bytes: int | None
    gpu_memory_allocated_bytes: int | None
    gpu_memory_peak_bytes: int | None
    """Peak of the framework's allocator, if known."""
    gpu_memory_source: str | None
    batch_memory: dict[str, Any] | None
    """Which batch sizes fit."""
    gpus: tuple[GpuResult, ...]
    bottleneck: str | None
    """Such as `input-bound`."""
    bottleneck_text: str | None
    bottleneck_notes: tuple[str, ...]
    """Other reasons for slowness."""
    waits: Waits | None
    concerns: tuple[Concern, ...]
    """Problems of the training, the worst first."""
    causes: tuple[Cause, ...]
    """Causes with line and code, the costliest first."""
    time_pct: dict[str, float | None]
    """Shares of a step in percent. `step` is `dispatch` and `device` together."""
    account: Account | None
    """Where the time of the run went."""
    windows: int
    """All reported windows."""
    measured_s: float
    """Time in steady state since the last change."""
    ran_s: float
    """From first to last step, without pauses."""
    discarded: dict[str, int]
    """Discarded windows by reason."""
    discarded_pct: dict[str, float]
    """Discarded share of `ran_s` by reason."""
    processes: int | None
    """Number of successive processes."""
    contended_slices_pct: float | None
    stolen_pct: float | None
    """Share of one core for other machines."""
    gpu_others: GpuOthers | None
    """Use of the GPU by other processes."""
    others_cpu_pct: float | None
    """Use of the CPU by other programs; 100 is one core."""
    not_measured: dict[str, str]
    """Unreported values, with the reason."""
    missing: dict[str, str]
    """Why figures are unknown, such as `step_ms.p50`."""

    @property
    def last_loss(self) -> float | None:
        """The last loss."""
        return self.loss["last"]

    @property
    def place(self) -> str:
        """Host and device as in `--lane`."""
        return LaneSpec(self.device, host=self.host).place

    @property
    def kind(self) -> str:
        """`cpu` or `gpu`."""
        return LaneSpec(self.device).kind

    @property
    def full_name(self) -> str:
        """The id and the name."""
        return f"{self.id} {self.name}".strip()

    @property
    def measured_text(self) -> str:
        """The measured time, and the discarded shares."""
        shares = {reason: percent / 100 for reason, percent in self.discarded_pct.items()}
        return f"{units.measured(self.measured_s, self.ran_s, shares)}; {units.discarded(shares)}"

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return dict(codec.to_json(self))

    def __hash__(self) -> int:
        return hash((self.id, self.name, self.examples_per_s))


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """A change during the race, its effect, and the verdict."""

    at_s: float
    lane_id: str | None
    change: str
    examples_per_s_before: float | None
    examples_per_s_after: float | None
    effect: Estimate | None
    effect_text: str
    verdict: str | None = None
    winner_id: str | None = None
    ratio: Estimate | None = None

    def cells(self, lanes: int) -> tuple[str, ...]:
        """Return a table row, see `HISTORY_HEADS`."""
        speeds = (self.examples_per_s_before, self.examples_per_s_after)
        texts = ["–" if speed is None else units.rate(speed) for speed in speeds]
        of_lane = self.lane_id is not None
        verdict = "–" if self.verdict is not None and lanes > 1 else ""
        if self.verdict is not None and self.ratio is not None:
            verdict = ahead(self.winner_id or self.verdict, self.ratio)
        return (
            units.clock(self.at_s),
            f"{self.lane_id or ''} {self.change}".strip(),
            " → ".join(texts) if of_lane or self.examples_per_s_before is not None else "",
            self.effect_text if of_lane else "",
            str(self.ratio.pairs) if self.ratio is not None else "",
            verdict,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceResult:
    """The result of a race. `print` displays the table of the command."""

    schema: int = JSON_SCHEMA
    tfmon: str = __version__
    """The version of tfmon."""
    python: str | None
    """The Python of tfmon itself."""
    scenario: str
    title: str
    source: str | None
    """Digest of the scenario's file."""
    started: str | None
    """Local time with its offset from UTC."""
    mode: str
    seconds: float | None
    """How long the lanes raced."""
    interrupted: str | None
    is_series: bool
    """Whether the race existed only for a series."""
    fresh: bool
    """Whether the lanes were started several times."""
    rounds: int
    """Rounds since the last change."""
    contended: bool
    """Whether lanes shared cores at the same time."""
    differs: tuple[str, ...]
    """Known differences between the lanes' machines."""
    environment: dict[str, str] | None
    """Variables that change TensorFlow's speed."""
    defaults: dict[str, KnobValue]
    """Every knob with its default."""
    differing: tuple[str, ...]
    """Knobs in which the lanes differ."""
    machine: Machine
    """The machine of tfmon."""
    hosts: dict[str, HostResult]
    between_processes: BetweenProcesses | None
    views: dict[str, View]
    """Views by host."""
    collisions: tuple[Collision, ...]
    lanes: tuple[LaneResult, ...]
    verdict: Verdict
    history: tuple[ChangeResult, ...]
    crossover: dict[str, Any] | None
    tuning: dict[str, Any] | None
    profiles: dict[str, Any] | None
    """The difference of the lanes' profiles."""
    recording: Path | None
    """The file of the recording."""
    recording_stopped: str | None
    """Why the recording stopped, or is missing."""
    recording_stopped_s: float | None
    id: str = field(default="", metadata={"json": False})
    """The name in a comparison."""
    table: str = field(default="", repr=False, metadata={"json": False})
    """The table that the command prints."""

    @property
    def winner(self) -> LaneResult | None:
        """The faster lane, if known."""
        return next((lane for lane in self.lanes if lane.id == self.verdict.winner_id), None)

    @property
    def ratio(self) -> float | None:
        """Fastest lane over slowest."""
        return self.verdict.ratio

    @property
    def ratio_ci95(self) -> Interval | None:
        """The 95 % interval of `ratio`."""
        return self.verdict.ratio_ci95

    @property
    def machines(self) -> dict[str, Machine]:
        """Machines by host. The key of tfmon's machine is empty."""
        return {"": self.machine, **{host: state.machine for host, state in self.hosts.items()}}

    def machine_of(self, lane: LaneResult) -> Machine:
        """Return the machine of a lane."""
        return self.machines.get(lane.host, self.machine)

    def lane(self, word: str) -> LaneResult:
        """Return the lane with this id, name or device; raises TfmonError."""
        for part in ("id", "name", "device"):
            lanes = [lane for lane in self.lanes if getattr(lane, part) == word]
            if len(lanes) == 1:
                return lanes[0]
        known = ", ".join(f"{lane.id} ({lane.name})" for lane in self.lanes)
        raise TfmonError(f"{word!r} is not one lane of this race", f"its lanes are {known}")

    def to_json(self) -> dict[str, Any]:
        """Return the command's JSON object."""
        return dict(codec.to_json(self))

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the JSON object into a new file, which `tfmon diff` reads; return its path.

        Args:
            path: The file.
            force: Whether an existing file is replaced.

        Raises:
            UsageError: `path` is not a path.
            TfmonError: the file exists and `force` is not set, or it cannot be written.
        """
        if not isinstance(path, str | os.PathLike):
            raise UsageError(f"path={path!r} is not possible", "it is the path of a new file")
        target = Path(path)
        try:
            with target.open("w" if force else "x", encoding="utf-8") as file:
                json.dump(self.to_json(), file, indent=2, allow_nan=False)
                file.write("\n")
        except FileExistsError:
            raise TfmonError(f"{target} is there already", "name another file, or pass force=True") from None
        except OSError as error:
            raise TfmonError(f"{target} cannot be written: {error.strerror or error}") from None
        return target

    def to_frame(self) -> DataFrame:
        """Return a pandas data frame: a row for each lane by its id, a column for each figure.

        Columns of nested figures are joined by dots, such as `step_ms.p50`.

        Raises:
            TfmonError: pandas is not installed.
        """
        rows = [
            {name: value for name, value in lane.to_json().items() if name not in ("missing", "discarded")}
            for lane in self.lanes
        ]
        return pandas().json_normalize(rows).set_index("id")

    def __hash__(self) -> int:
        return hash((self.scenario, self.started, self.lanes))

    def __str__(self) -> str:
        return self.table

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.table)}</pre>"

    def __repr__(self) -> str:
        return f"<RaceResult {self.scenario}: {self.verdict}>"


def pandas() -> Any:  # noqa: ANN401 - a module
    """Return the module pandas; raises TfmonError."""
    try:
        import pandas as module
    except ImportError:
        raise TfmonError("to_frame needs pandas, which is not installed", "pip install pandas") from None
    return module
