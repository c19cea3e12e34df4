"""Profiles whose parts are given."""

from collections.abc import Mapping

from tfmon.analysis.compare_profiles import ProfiledSide
from tfmon.model.profile import NO_MEMORY, Allocated, Input, MemoryPeak, Part, Profile
from tfmon.model.readings import Missing

INPUT = ("waiting for input", "")
NOT_HERE = Missing("not in this test")


def memory_peak(layers: Mapping[str, int], place: str = "CPU", before: int = 0) -> MemoryPeak:
    """Return a peak of memory, of which each operation has so many MiB."""
    operations = tuple(Allocated(name, size << 20, 1, "[64,128]") for name, size in layers.items())
    whole = (sum(layers.values()) + before) << 20
    return MemoryPeak(place, whole, before << 20, 0, operations, next(iter(layers)), whole)


def profile(
    times: Mapping[tuple[str, str], float],
    *,
    device: str = "CPU",
    memory: tuple[MemoryPeak, ...] | Missing = NO_MEMORY,
) -> Profile:
    parts = [
        Part(name, kind, device if kind else "", time, time if kind else 0.0, 20 if kind else 0)
        for (name, kind), time in times.items()
    ]
    return Profile(
        steps=20, step_ns=sum(times.values()), longest_ns=sum(times.values()), mode="graph",
        input=Input(times.get(INPUT, NOT_HERE), (), NOT_HERE), call=NOT_HERE, sync_ns=NOT_HERE, other_ns=0.0,
        drain_ns=0.0, devices=(), ops=NOT_HERE, retraced_steps=0, retraces=(), compiles=(), bottleneck=NOT_HERE,
        host_only=False, notes=(), parts=tuple(parts), memory=memory,
    )  # fmt: skip


MATMUL, GRADIENT = ("net/dense/MatMul", "MatMul"), ("gradient_tape/net/dense/MatMul/MatMul_1", "MatMul")
CAST = ("net/dense/Cast", "Cast")


def two_sides(times: int = 3) -> tuple[ProfiledSide, ProfiledSide]:
    """Return a lane, and one of a larger batch that also casts."""
    slow = {MATMUL: 9e6, GRADIENT: 6e6, CAST: 0.4e6, INPUT: 0.2e6}
    fast = {MATMUL: 1e6, GRADIENT: 2e6, INPUT: 0.5e6}

    def profiles(parts: Mapping[tuple[str, str], float]) -> tuple[Profile, ...]:
        return tuple(profile({key: t * (1 + 0.01 * n) for key, t in parts.items()}) for n in range(times))

    return (
        ProfiledSide("A", "cpu batch_size=16", profiles(fast), 3.4e6, 16.0),
        ProfiledSide("B", "cpu batch_size=256", profiles(slow), 15.1e6, 256.0),
    )
