"""A race on a GPU that another process uses for some of the time."""

from collections.abc import Sequence

from support.events import gpu_sample
from support.ui import Demo
from tfmon.model.gpu_samples import ProcessName
from tfmon.model.readings import Missing

ANA = ProcessName("ana", "python train.py --epochs 300")
GIB = 2**30


def shared_demo(taken: Sequence[float | None], mode: str = "turns", held_gib: int = 60, **changes) -> Demo:
    """Race for 2 s for each share of the GPU that another process uses; `None` if the driver reports no share."""
    demo = Demo(mode=mode).go()
    for one in taken:
        since_ns = demo.clock()
        demo.race(2)
        shares = Missing("not supported by this GPU") if one is None else {4_001: 55.0, 777: one}
        used = {4_001: 8 * GIB, **({777: held_gib * GIB} if held_gib else {})}
        demo.session.accept(
            gpu_sample(
                "GPU-1", at_ns=demo.clock(), used_by_pid=used, busy_by_pid=shares, names={777: ANA},
                since_ns=since_ns, until_ns=demo.clock(), total_bytes=80.0 * GIB,
                used_bytes=float(sum(used.values())), name="NVIDIA H200", **changes,
            )
        )  # fmt: skip
    return demo
