"""A race of one GPU against eight, as the screen sees it."""

from collections.abc import Sequence

from support.events import gpu_sample
from tfmon.model.knobs import BATCH_SCOPE, BATCH_SIZE, PREFETCH, KnobValue
from tfmon.model.lane_events import LibrariesLoaded
from tfmon.model.readings import Missing
from tfmon.model.spec import LaneSpec

from .ui import Demo

EIGHT = LaneSpec("gpu:0+1+2+3+4+5+6+7")
BUSY = (93.0, 87.0, 100.0, 71.0, 90.0, 88.0, 92.0, 85.0)


class ManyGpus(Demo):
    """Lanes on the GPUs of a machine with eight; one of them does not report its load."""

    def __init__(self, specs: Sequence[LaneSpec] = (LaneSpec("gpu:0"), EIGHT), mode: str = "turns") -> None:
        super().__init__(specs, mode=mode, knobs=(BATCH_SIZE, BATCH_SCOPE, PREFETCH))
        self.silent: set[int] = set()

    def build(self, lane: str, **settings: KnobValue) -> None:
        own = self.spec(lane).settings
        super().build(lane, **{"batch_size": 64, "batch_scope": "global", "prefetch": "auto", **own, **settings})

    def equip(self, lane: str, tensorflow: str = "2.21.0") -> None:
        indexes = self.spec(lane).indexes
        name = "NVIDIA H200" if len(indexes) == 1 else f"{len(indexes)}x NVIDIA H200"
        self.session.accept(
            LibrariesLoaded(
                lane=lane, at_ns=self.clock(), tensorflow=tensorflow, keras="3.14.0", numpy="2.2.0",
                device_name=name, gpu_uuids=tuple(f"GPU-{index}" for index in indexes),
            )
        )  # fmt: skip

    def sample_gpus(self) -> None:
        for index, busy in enumerate(BUSY):
            self.session.accept(
                gpu_sample(
                    f"GPU-{index}", index, at_ns=self.clock(), name="NVIDIA H200",
                    busy_pct=Missing("not supported") if index in self.silent else busy,
                    used_bytes=(32 + index / 2) * 2**30, total_bytes=139.0 * 2**30,
                    power_w=600.0 + index, power_limit_w=700.0, temperature_c=61.0 + index,
                    sm_clock_mhz=1_900.0,
                    used_by_pid={4_000: 2 * 2**30, 4_001: (30 + index // 3) * 2**30},
                )
            )  # fmt: skip


def eight_gpus(mode: str = "turns", seconds: int = 30, ratio: float = 6.9) -> ManyGpus:
    """Return a race of one GPU against eight in its last second."""
    demo = ManyGpus(mode=mode)
    demo.go()
    for _ in range(seconds):
        demo.race(1, (2_420, 2_420 * ratio))
    return demo
