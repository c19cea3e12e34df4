"""AMD GPUs: whether the kernel lists one that this TensorFlow can use, and this user may open."""

from __future__ import annotations

from tfmon.doctor.checks import GPU, Finding, broken, check, not_applicable, ok
from tfmon.doctor.facts import Facts

_ROCM = "https://rocm.docs.amd.com/projects/install-on-linux/en/latest/"


@check("amd-gpus", "AMD GPUs", GPU, _ROCM)
def amd_gpus(facts: Facts) -> Finding:
    """Judge what the kernel's compute driver lists, and what hides it."""
    seen = facts.visibility
    if not seen.has_amd:
        return not_applicable("the kernel lists no AMD GPU for computing")
    if seen.amd_hidden:
        unset = seen.amd_hidden.partition("=")[0]
        return broken(f"hidden by {seen.amd_hidden}", "a GPU that is listed", f"unset {unset}")
    listed = [f"gpu:{one.index} {one.uuid} {one.name}" for one in seen.amd_gpus]
    names = ", ".join(one.name for one in seen.amd_gpus)
    if facts.wheel is not None and not facts.wheel.rocm:
        found = f"{names}; this TensorFlow ({facts.wheel.distribution}) is not built for ROCm"
        return broken(
            found, "tensorflow-rocm", "install tensorflow-rocm as AMD's ROCm documentation says", *listed
        )
    return ok(names, *listed)


CHECKS = (amd_gpus,)
