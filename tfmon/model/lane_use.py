"""The use of CPU, memory and GPUs by a lane."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, fields, replace

from tfmon.model.fast_dataclass import dataclass
from tfmon.model.gpu_samples import GpuActivity, GpuProcesses, GpuSample, Taken
from tfmon.model.knobs import BATCH_SIZE
from tfmon.model.lane_events import Window
from tfmon.model.readings import NOT_SAMPLED, Missing, Reading, TreeSample, known, summed
from tfmon.model.windows import Mean, StatePart

WAITS = Missing("it had no slice since the last sample")
LEAST_NS = 50_000_000  # CPU time is counted in steps of 10 ms.
MOST_DEATHS = 16
ORDERLY = (1, 2, 13, 15)


MOST_SAMPLES = 96


@dataclass(frozen=True, slots=True)
class MemoryCourse:
    """Samples of memory, of which some are dropped."""

    points: tuple[tuple[int, float], ...] = ()
    every: int = 1
    seen: int = 0
    latest: tuple[int, float] | None = None

    def with_sample(self, at_ns: int, value: float) -> MemoryCourse:
        """Return the course with another sample."""
        points, every = self.points, self.every
        if not self.seen % every:
            points = (*points, (at_ns, value))
        if len(points) >= MOST_SAMPLES:
            points, every = points[::2], 2 * every
        return MemoryCourse(points, every, self.seen + 1, (at_ns, value))


@dataclass(frozen=True, slots=True)
class SliceClock:
    """The time of a lane in slices."""

    sampled_ns: int | None = None
    granted_ns: int | None = None
    spent_ns: int = 0

    def granted(self, at_ns: int, *, trains: bool) -> SliceClock:
        """Return the clock after a slice's start."""
        if not trains and self.granted_ns is None:
            return self
        return replace(self, granted_ns=at_ns if trains else None, spent_ns=self.until(at_ns))

    def sampled(self, at_ns: int) -> SliceClock:
        """Return the clock after a sample."""
        return SliceClock(at_ns, None if self.granted_ns is None else at_ns)

    def in_slices(self, cpu_pct: Reading, at_ns: int) -> Reading:
        """Convert CPU use per time to time in slices."""
        if isinstance(cpu_pct, Missing) or self.sampled_ns is None:
            return cpu_pct
        spent_ns = self.until(at_ns)
        return cpu_pct * (at_ns - self.sampled_ns) / spent_ns if spent_ns >= LEAST_NS else WAITS

    def until(self, at_ns: int) -> int:
        """Return the time in slices."""
        return self.spent_ns + (max(0, at_ns - self.granted_ns) if self.granted_ns is not None else 0)


@dataclass(frozen=True, slots=True)
class Death:
    """The end of a child by a signal."""

    pid: int
    signal: int
    at_ns: int


@dataclass
class TreeUse(StatePart):
    """The use by a lane's processes."""

    cpu_pct: Reading = NOT_SAMPLED
    private_bytes: Reading = NOT_SAMPLED
    peaks: Mapping[str, float] = field(default_factory=dict)
    processes: int | None = None
    pids: tuple[int, ...] = ()
    racing_cpu_pct: Mean = field(default_factory=Mean)
    clock: SliceClock = field(default_factory=SliceClock)
    memory: MemoryCourse = field(default_factory=MemoryCourse)
    deaths: tuple[Death, ...] = ()

    def in_slices(self, sample: TreeSample, cores: float) -> TreeSample:
        """Return a sample with CPU use in slices."""
        cpu_pct = self.clock.in_slices(sample.cpu_pct, sample.at_ns)
        if cores and not isinstance(cpu_pct, Missing):
            cpu_pct = min(cpu_pct, 100 * cores)
        return replace(sample, cpu_pct=cpu_pct)

    @property
    def peak_private_bytes(self) -> Reading:
        """The largest sample."""
        return max(self.peaks.values(), default=NOT_SAMPLED)

    def add(self, sample: TreeSample, phase: str, *, racing: bool, ending: bool) -> None:
        """Add a sample."""
        seen, killed = {death.pid for death in self.deaths}, {} if ending else sample.killed
        new = [(pid, by) for pid, by in killed.items() if pid not in seen and by not in ORDERLY]
        self.deaths = (*self.deaths, *(Death(pid, by, sample.at_ns) for pid, by in new))[:MOST_DEATHS]
        if not isinstance(sample.private_bytes, Missing):
            self.peaks = {**self.peaks, phase: max(self.peaks.get(phase, 0.0), sample.private_bytes)}
        if racing:
            self.racing_cpu_pct = self.racing_cpu_pct.with_sample(sample.cpu_pct)
        if sample.cpu_pct != WAITS:
            self.cpu_pct = sample.cpu_pct
        self.private_bytes = sample.private_bytes
        self.processes, self.pids = sample.processes, sample.pids
        self.clock = self.clock.sampled(sample.at_ns)

    def end_window(self) -> None:
        """Store the last sample. Later samples may measure an exiting process."""
        private, at_ns = self.private_bytes, self.clock.sampled_ns
        if isinstance(private, Missing) or at_ns is None or (at_ns, private) == self.memory.latest:
            return
        self.memory = self.memory.with_sample(at_ns, private)


DRIVER = "driver"
ONLY_PROCESS = "only process"
ALLOCATOR = "TensorFlow's allocator"
DEVICE_CHANGE = "device change"

ACTIVITY = tuple(field_.name for field_ in fields(GpuActivity) if field_.name.endswith("_pct"))
NO_GPU = Missing("no GPU in this lane")
HIDDEN = Missing("hidden by the container (run it with --pid=host)")
NOT_LISTED = Missing("the driver lists no memory for this lane")
NO_SHARE = Missing("the driver lists no process of this lane")
NOT_ALL = Missing("not every GPU of this lane is sampled yet")


def used_bytes_of_lane(
    sample: GpuSample,
    pids: Collection[int],
    *,
    only_lane: bool,
    peak_bytes: int | None,
    before_bytes: float | None,
) -> tuple[Reading, str]:
    """Return the GPU memory of a lane and the first source that applies.

    The sources are `driver` (the lane's processes), `only process` (in a container with the host's process
    numbers), `TensorFlow's allocator` (without the CUDA context), and `device change` (since the lane opened the
    GPU). Newer drivers list a container's processes without amounts.
    """
    used, processes = sample.memory.used_bytes, sample.processes
    amounts = [amount for pid in pids if (amount := processes.used_by_pid.get(pid))]
    if amounts:
        return float(sum(amounts)), DRIVER
    listed = [amount for amount in processes.used_by_pid.values() if amount]
    if processes.foreign_pids and only_lane and len(listed) == len(processes.used_by_pid) == 1:
        return float(listed[0]), ONLY_PROCESS
    if peak_bytes:
        return float(peak_bytes), ALLOCATOR
    if only_lane and before_bytes is not None and not isinstance(used, Missing) and used > before_bytes:
        return used - before_bytes, DEVICE_CHANGE
    if processes.no_list_reason:
        return Missing(processes.no_list_reason), ""
    return (HIDDEN if processes.foreign_pids else NOT_LISTED), ""


def busy_pct(processes: GpuProcesses, pids: Collection[int], *, only_lane: bool) -> Reading:
    """Return the load of a GPU by processes, in percent."""
    shares = processes.busy_by_pid
    if isinstance(shares, Missing):
        return shares
    lane_shares = [shares[pid] for pid in pids if pid in shares]
    if lane_shares:
        return sum(lane_shares)
    if processes.foreign_pids and only_lane and len(shares) == 1:
        return next(iter(shares.values()))
    return HIDDEN if processes.foreign_pids else NO_SHARE


@dataclass(frozen=True, slots=True)
class GpuPart:
    """A lane's use of one GPU."""

    busy_pct: Reading = NOT_SAMPLED
    lane_busy_pct: Reading = NOT_SAMPLED
    used_bytes: Reading = NOT_SAMPLED
    source: str = ""
    used_before: float | None = None
    free_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class BatchPeaks:
    """The allocator's peak by batch size. A process's peak never falls, so smaller peaks are unknown."""

    by_size: Mapping[int, int] = field(default_factory=dict)
    before: int = 0

    def with_window(self, size: object, peak_bytes: int | None) -> BatchPeaks:
        """Return the peaks after a steady window."""
        if not isinstance(size, int) or peak_bytes is None or peak_bytes <= self.before:
            return self
        if size < max(self.by_size, default=0):
            return self  # the size alone does not explain the peak
        return replace(self, by_size={**self.by_size, size: peak_bytes})

    def changed(self, peak_bytes: int | None, *, only_batch: bool) -> BatchPeaks:
        """Return the peaks after a knob change."""
        return BatchPeaks(self.by_size if only_batch else {}, max(self.before, peak_bytes or 0))


@dataclass
class GpuUse(StatePart):
    """The use of GPUs by a lane and others."""

    parts: Mapping[str, GpuPart] = field(default_factory=dict)
    used_bytes: Reading = NO_GPU
    source: str = ""
    allocated_bytes: int | None = None
    peak_bytes: int | None = None
    batch_peaks: BatchPeaks = field(default_factory=BatchPeaks)
    allocated: MemoryCourse = field(default_factory=MemoryCourse)
    racing_busy_pct: Mean = field(default_factory=Mean)
    racing_activity: Mapping[str, Mean] = field(default_factory=dict)
    taken: Mapping[int, tuple[Taken, ...]] = field(default_factory=dict)

    def end_window(self, window: Window) -> None:
        """Store the framework's allocated memory."""
        now_bytes, peak_bytes = window.gpu_memory_allocated_bytes, window.gpu_memory_peak_bytes
        if now_bytes is not None:
            self.allocated = self.allocated.with_sample(window.at_ns, now_bytes)
        if not window.marks:
            self.batch_peaks = self.batch_peaks.with_window(window.settings.get(BATCH_SIZE.name), peak_bytes)
        self.allocated_bytes, self.peak_bytes = now_bytes, peak_bytes

    def add_activity(self, activity: GpuActivity | Missing) -> None:
        """Add a sample of a GPU."""
        if not isinstance(activity, Missing):
            means = self.racing_activity
            self.racing_activity = {
                name: means.get(name, Mean()).with_sample(getattr(activity, name)) for name in ACTIVITY
            }

    def add(self, sample: GpuSample, pids: Sequence[int], count: int, *, opening: bool, only_lane: bool) -> None:
        """Add a sample of one of `count` GPUs; `opening`: the lane uses no memory yet."""
        peak_bytes = self.peak_bytes or self.allocated_bytes
        before_bytes = self.parts.get(sample.key, GpuPart()).used_before
        if before_bytes is None and opening:
            before_bytes = known(sample.memory.used_bytes)
        used, source = used_bytes_of_lane(
            sample,
            pids,
            only_lane=only_lane,
            peak_bytes=peak_bytes if count == 1 else None,
            before_bytes=None if sample.part_of else before_bytes,
        )
        lane_busy = busy_pct(sample.processes, pids, only_lane=only_lane)
        free_bytes = None if sample.memory.unified else sample.memory.free_bytes
        part = GpuPart(sample.load.busy_pct, lane_busy, used, source, before_bytes, free_bytes)
        self.parts = parts = {**self.parts, sample.key: part}
        sources = dict.fromkeys(part.source for part in parts.values())
        total, source = summed([part.used_bytes for part in parts.values()]), " + ".join(sources)
        if len(parts) < count:
            total = NOT_ALL
        elif count > 1 and peak_bytes and not set(sources) <= {DRIVER, ONLY_PROCESS}:
            total, source = float(peak_bytes), ALLOCATOR
        self.used_bytes = total
        self.source = "" if isinstance(total, Missing) else source
