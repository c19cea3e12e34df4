"""A race of one GPU against eight, as the screen sees it."""

from collections.abc import Sequence

from support.events import gpu_sample
from tfmon.model.knobs import BATCH_SCOPE, BATCH_SIZE, PREFETCH, KnobValue
from tfmon.model.spec import LaneSpec

from .ui import Demo

EIGHT = LaneSpec("gpu:0+1+2+3+4+5+6+7")
BUSY = (93.0, 87.0, 100.0, 71.0, 90.0, 88.0, 92.0, 85.0)


class ManyGpus(Demo):
    """Lanes on the GPUs of a machine with eight."""

    def __init__(self, specs: Sequence[LaneSpec] = (LaneSpec("gpu:0"), EIGHT)) -> None:
        super().__init__(specs, mode="turns", knobs=(BATCH_SIZE, BATCH_SCOPE, PREFETCH))

    def build(self, lane: str, **settings: KnobValue) -> None:
        own = self.spec(lane).settings
        super().build(lane, **{"batch_size": 64, "batch_scope": "global", "prefetch": "auto", **own, **settings})

    def gpu_uuids(self, indexes: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(f"GPU-{index}" for index in indexes)

    def sample_gpus(self) -> None:
        for index, busy in enumerate(BUSY):
            self.session.accept(
                gpu_sample(
                    f"GPU-{index}", index, at_ns=self.clock(), name="NVIDIA H200",
                    busy_pct=busy, used_bytes=(32 + index / 2) * 2**30, total_bytes=139.0 * 2**30,
                    power_w=600.0 + index, power_limit_w=700.0, temperature_c=61.0 + index,
                    sm_clock_mhz=1_900.0,
                    used_by_pid={4_000: 2 * 2**30, 4_001: (30 + index // 3) * 2**30},
                )
            )  # fmt: skip


def eight_gpus() -> Demo:
    """Return a race of one GPU against eight in its 30th second."""
    demo = ManyGpus().go()
    for _ in range(30):
        demo.race(1, (2_420, 2_420 * 6.9))
    return demo
