"""A scripted GPU that is split up (MIG) into two instances, beside a whole one."""

from support.nvml import BUSY, TWO_GPUS
from tfmon.probes.base import Gpu

FIRST_UUID, SECOND_UUID = (f"MIG-{digit * 8}-1111-2222-3333-444444444444" for digit in "12")
SPLIT = (
    TWO_GPUS.replace("util 0 87 41\n", "")
    + f"""\
mig 0 1
energy 0 7000000
clock 0 1500 1600 1980 1700
uuid 10 {FIRST_UUID}
name 10 NVIDIA_Busy_MIG_1g.10gb
mem 10 10000000000 100000000 6900000000 3000000000
proc 10 4242 2500000000
gpi 10 7
uuid 13 {SECOND_UUID}
name 13 NVIDIA_Busy_MIG_2g.20gb
mem 13 20000000000 100000000 19900000000 0
gpi 13 3
"""
)
"""Instances number 7 and 3 of GPU 0, in its slots 0 and 3."""
LOADS = "gpm 0 7 62.5\ngpm 0 3 0\n"
"""The GPM readings. The driver has no GPM without these lines."""

FIRST = Gpu(0, FIRST_UUID, "NVIDIA Busy MIG 1g.10gb", physical_gpu=0, part_of=BUSY.uuid)
SECOND = Gpu(0, SECOND_UUID, "NVIDIA Busy MIG 2g.20gb", physical_gpu=0, part_of=BUSY.uuid)
