"""A made profile of a lane on a GPU: kernels run for 90 % of each step."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "profile"))

from made_lanes import calling, each_step, gpu, mark, marker, plane, space, waiting

from tfmon.model.profile import Profile
from tfmon.profile.breakdown import profile_of


def gpu_profile() -> Profile:
    """Return the profile of a trace with four steps of 1 ms on a GPU."""
    loop = each_step(4, lambda n, at: [marker(n, at), *waiting(at, 5), *calling(at + 5, 60, n + 1)])
    kernels = each_step(4, lambda _n, at: [mark("sgemm", at + 20, 900, tf_op="net/MatMul:MatMul")])
    host, device = plane("/host:CPU", {"python": loop}), gpu({"Stream #13(Kernel)": kernels})
    return profile_of(space(host, device, plane("Task Environment", {})), on_gpu=True)
