"""A machine with eight GPUs that several users share: a script for the fake driver, and samples to draw."""

from support.events import gpu_sample
from tfmon.model.gpu_samples import GpuSample, ProcessName
from tfmon.model.readings import Missing
from tfmon.probes.base import Gpu

GIB = 2**30
TOTAL = 80 * GIB
WORK: tuple[tuple[int, tuple[tuple[int, int, int], ...]], ...] = (
    (97, ((7001, 61, 70), (7002, 36, 6))),
    (0, ()),
    (88, ((7003, 88, 40),)),
    (0, ((7004, 0, 74),)),
    (0, ((7005, 0, 2),)),
    (41, ((7006, 41, 30),)),
    (3, ()),
    (100, ((7007, 99, 77),)),
)
"""Load in percent, and the processes as pid, share of the GPU in percent and memory in GiB, of each GPU."""
PEOPLE = {
    7001: ProcessName("ana", "python train.py --config configs/vit-large.yaml --epochs 300"),
    7002: ProcessName("ana", "python evaluate.py --checkpoint last"),
    7003: ProcessName("bob", "/opt/conda/envs/jax/bin/python -m pretrain.main --mesh 8x1 --data /data/c4"),
    7004: ProcessName("carol", "jupyter-lab --no-browser"),
    7005: ProcessName("dmitri", "python -c 'import tensorflow'"),
    7006: ProcessName("bob", "python serve.py"),
    7007: ProcessName("", ""),
}
GPUS = tuple(Gpu(at, f"GPU-{at:08x}-0000", "NVIDIA H100 80GB HBM3", at, power_limit_w=700.0) for at in range(8))


def script(stamp_us: int = 9_000_000) -> str:
    """Return the script for the fake driver; loads are samples of the seconds before the stamp."""
    lines = ["count 8"]
    for at, (busy, processes) in enumerate(WORK):
        used = sum(gib for *_, gib in processes) * GIB
        lines += [
            f"uuid {at} {GPUS[at].uuid}",
            f"name {at} NVIDIA_H100_80GB_HBM3",
            f"mem {at} {TOTAL} 0 {TOTAL - used} {used}",
            f"power {at} {100_000 + 6_000 * busy}",
            f"limit {at} 700000",
            f"temp {at} {30 + busy // 3}",
            f"util {at} {busy} 0",
            f"clock {at} 1980 2619 1980 2619",
            f"link {at} 5 5 16 16",
            # Long ago it was another load; of the last five seconds, it is this one.
            f"sample {at} {stamp_us - 8_000_000} {100 - busy}",
            *(f"sample {at} {stamp_us - back * 1_000_000} {busy}" for back in (4, 3, 2, 1, 0)),
            f"share {at} 1 1 0",
        ]
        for pid, share, gib in processes:
            lines += [f"proc {at} {pid} {gib * GIB}", f"share {at} {pid} {stamp_us} {share}"]
    return "\n".join(lines) + "\n"


def samples(
    at_ns: int,
    *,
    host: str = "",
    gpus: int = 8,
    ours: dict[int, tuple[int, int, int]] | None = None,
    since_ns: int | None = None,
) -> list[GpuSample]:
    """Return a sample of each GPU; `ours` is a process of tfmon by GPU: pid, share and memory in GiB."""
    found = []
    for at, (busy, processes) in enumerate(WORK[:gpus]):
        own = (ours or {}).get(at)
        listed = (*processes, own) if own else processes
        found.append(
            gpu_sample(
                GPUS[at].uuid,
                at,
                host=host,
                at_ns=at_ns,
                name=GPUS[at].name,
                busy_pct=float(min(100, busy + (own[1] if own else 0))),
                used_bytes=float(sum(gib for *_, gib in listed) * GIB),
                total_bytes=float(TOTAL),
                power_w=100.0 + 6 * busy,
                power_limit_w=700.0,
                temperature_c=float(30 + busy // 3),
                sm_clock_mhz=1980.0 if busy else 345.0,
                sm_clock_max_mhz=1980.0,
                pcie_sent_bytes_per_s=2.0**20 * busy,
                pcie_received_bytes_per_s=2.0**24 * busy,
                pcie_generation=5.0 if busy else 1.0,
                pcie_generation_max=5.0,
                pcie_width=16.0 if at != 5 else 8.0,
                pcie_width_max=16.0,
                warning="the PCIe link has 8 of 16 lanes" if at == 5 else "",
                used_by_pid={pid: gib * GIB for pid, _, gib in listed},
                busy_by_pid={pid: float(share) for pid, share, _ in listed}
                if at != 6
                else Missing("not supported"),
                since_ns=since_ns,
                until_ns=None if since_ns is None else at_ns,
                names={
                    **{pid: PEOPLE[pid] for pid, *_ in processes if PEOPLE[pid].user},
                    **({own[0]: ProcessName("me", "python -m tfmon", ours=True)} if own else {}),
                },
            )
        )
    return found
