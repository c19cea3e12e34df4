"""The NVIDIA driver: whether it is there and whole, and shows TensorFlow a GPU that this wheel knows."""

from __future__ import annotations

import re

from tfmon.doctor import remedies
from tfmon.doctor.checks import GPU, NVIDIA, Finding, broken, check, not_applicable, ok, warning
from tfmon.doctor.facts import Facts
from tfmon.doctor.versions import release
from tfmon.probes.base import Gpu
from tfmon.probes.nvidia.nvml import DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND
from tfmon.probes.obstacles import doubt, driver_obstacle, hidden_obstacle, visible_gpus

_LEAST_DRIVER = {11: "450.80.02", 12: "525.60.13", 13: "580"}
"""Oldest driver for any CUDA of a major version.

Source: https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
"""
_LEAST_DRIVER_WINDOWS = {11: "452.39", 12: "527.41", 13: "580"}
_NO_GPU = "the driver lists no GPU"
_SHORT_UUID = len("MIG-12345678")
"""So much of an instance's UUID is as a rule unique."""


@check("driver", "NVIDIA driver", GPU, f"{NVIDIA}deploy/nvml-api/group__nvmlDeviceQueries.html")
def driver(facts: Facts) -> Finding:
    """Judge whether the driver lists a GPU."""
    if facts.visibility.system != "Linux":
        return not_applicable("Linux only")
    obstacle = driver_obstacle(facts.visibility)
    if obstacle is not None and facts.visibility.has_amd and not facts.has_nvidia:
        return not_applicable("the machine has an AMD GPU")
    if obstacle is None:
        names = ", ".join(one.name for one in facts.visibility.physical_gpus)
        evidence = [f"GPU {one.index} {one.uuid} {one.name}" for one in facts.visibility.physical_gpus]
        return ok(f"{facts.visibility.driver or 'there'}: {names}", *evidence)
    failure = facts.visibility.failure
    fix = obstacle.hint
    if failure is not None and failure.code == LIBRARY_NOT_FOUND:
        inside = facts.platform.container and (facts.visibility.driver_loaded or facts.driver.nodes)
        fix = remedies.give_gpu(facts) if inside else remedies.install_driver(facts)
    if failure is not None and failure.code == DRIVER_NOT_LOADED and facts.platform.container:
        fix = f"on the host: {obstacle.hint}"
    evidence = [
        f"kernel module: {facts.driver.module_version or 'not loaded'}",
        f"NVIDIA GPU on the PCI bus: {'yes' if facts.visibility.gpu_on_bus else 'not found'}",
        f"device files: {' '.join(facts.driver.nodes) or 'none'}",
    ]
    return broken(obstacle.reason, "an NVIDIA driver that lists a GPU", fix, *evidence)


@check("driver-files", "Access to the driver", GPU, f"{NVIDIA}datacenter/tesla/driver-installation-guide/")
def driver_files(facts: Facts) -> Finding:
    """Judge whether this user may open the driver's files."""
    if not facts.driver.nodes:
        return not_applicable("no files of the driver in /dev")
    if facts.driver.denied:
        denied = " ".join(facts.driver.denied)
        fix = f"let this user read and write them: sudo chmod a+rw {denied}, or join the group that owns them"
        return broken(f"this user may not open {denied}", "read and write access", fix, *facts.driver.nodes)
    needed = {"/dev/nvidiactl", "/dev/nvidia-uvm"} - set(facts.driver.nodes)
    if needed and not facts.platform.wsl:
        absent = " and ".join(sorted(needed))
        fix = remedies.give_gpu(facts) if facts.platform.container else "sudo nvidia-modprobe -u -c 0"
        return warning(f"{absent} missing", "the files that CUDA opens", fix, *facts.driver.nodes)
    return ok(" ".join(facts.driver.nodes))


@check("driver-version", "Driver for this CUDA", GPU, f"{NVIDIA}deploy/cuda-compatibility/")
def driver_version(facts: Facts) -> Finding:
    """Judge whether the driver is new enough for the CUDA that this TensorFlow was built with."""
    cuda = release(facts.build.cuda_version)
    if not facts.visibility.physical_gpus or not cuda:
        return not_applicable(_NO_GPU if not facts.visibility.physical_gpus else "this TensorFlow names no CUDA")
    table = _LEAST_DRIVER_WINDOWS if facts.platform.wsl else _LEAST_DRIVER
    least, have = table.get(cuda[0], ""), facts.visibility.driver
    evidence = f"TensorFlow is built with CUDA {facts.build.cuda_version}"
    if least and have and release(have) < release(least):
        where = "in Windows" if facts.platform.wsl else "on the host" if facts.platform.container else "here"
        fix = f"update the NVIDIA driver {where}, then restart"
        return broken(have, f"{least} or newer, for CUDA {cuda[0]}", fix, evidence)
    return ok(have or "unknown", evidence)


@check(
    "visible-devices", "Visible GPUs", GPU, f"{NVIDIA}cuda/cuda-c-programming-guide/#cuda-environment-variables"
)
def visible_devices(facts: Facts) -> Finding:
    """Judge what CUDA_VISIBLE_DEVICES hides, and whether its numbers mean what they seem to."""
    value = facts.visibility.visible
    if facts.platform.system != "Linux":
        return not_applicable("Linux only")
    evidence = "CUDA_VISIBLE_DEVICES is not set" if value is None else f'CUDA_VISIBLE_DEVICES="{value}"'
    if not facts.visibility.physical_gpus:
        return not_applicable(f"{_NO_GPU}; {evidence}")
    obstacle = hidden_obstacle(facts.visibility)
    if obstacle is not None:
        return broken(
            obstacle.reason, "a GPU that is listed", "unset CUDA_VISIBLE_DEVICES, or set it to 0", evidence
        )
    if text := doubt(facts.visibility):
        return warning(text, "an order that is certain", "export CUDA_DEVICE_ORDER=PCI_BUS_ID", evidence)
    seen = visible_gpus(facts.visibility)
    total = len(facts.visibility.physical_gpus)
    together = "--lane gpu:all trains on all of them together" if len(seen) > 1 else ""
    return ok(f"{len(seen)} of {total}: {', '.join(one.name for one in seen)}", evidence, together)


@check(
    "compute-capability",
    "GPU in the wheel",
    GPU,
    f"{NVIDIA}cuda/cuda-c-programming-guide/#application-compatibility",
)
def compute_capability(facts: Facts) -> Finding:
    """Judge whether the wheel has machine code for each GPU, or code that its driver must compile first."""
    devices = [one for one in visible_devices_of(facts) if one.capability is not None]
    known = facts.build.capabilities
    if not devices or not known:
        return not_applicable(_NO_GPU if not facts.visibility.physical_gpus else "compute capability unknown")
    built = f"built for {' '.join(known)}"
    evidence = [f"GPU {one.index} {one.name}: {_written(one)}" for one in devices]
    for one in devices:
        if _has_code(one, known):
            continue
        found = f"{one.name} has compute capability {_written(one)}; this TensorFlow is {built}"
        if not _can_compile(one, known):
            fix = "use an older TensorFlow whose wheel has it, or build TensorFlow for it"
            return broken(found, "a wheel with code for it", fix, *evidence)
        fix = "wait once, up to 30 minutes, and keep the result: export CUDA_CACHE_MAXSIZE=4294967296"
        return warning(found, "machine code for it in the wheel, not only PTX", fix, *evidence)
    return ok(", ".join(dict.fromkeys(f"{one.name} {_written(one)}" for one in devices)), built, *evidence)


@check("compute-mode", "Sharing the GPU", GPU, f"{NVIDIA}deploy/nvml-api/group__nvmlDeviceEnumvs.html")
def compute_mode(facts: Facts) -> Finding:
    """Judge compute modes that permit one process at most, and GPUs that are split up."""
    devices = visible_devices_of(facts)
    if not devices:
        return not_applicable(_NO_GPU)
    for one in devices:
        if one.instances == ():
            whole = f"for a whole GPU sudo nvidia-smi -i {one.index} -mig 0"
            fix = f"sudo nvidia-smi mig -i {one.index} -cgi 0 -C, or {whole}"
            return warning(
                f"GPU {one.index} {one.name} is split up (MIG), but has no instance", "an instance", fix
            )
        if one.exclusive:
            fix = f"sudo nvidia-smi -i {one.index} -c DEFAULT"
            return warning(f"GPU {one.index} permits one process at most", "compute mode DEFAULT", fix)
    split = [one for one in devices if one.instances]
    if split:
        instances = [instance for one in split for instance in one.instances or ()]
        named = ", ".join(f"--lane {one.uuid[:_SHORT_UUID]} ({one.name})" for one in instances)
        return ok(
            f"split up (MIG); a lane takes one instance: {named}", *(f"{one.uuid} {one.name}" for one in instances)
        )
    return ok("whole, for several processes")


def visible_devices_of(facts: Facts) -> list[Gpu]:
    """Return the GPUs that a program sees; all where it sees none."""
    return visible_gpus(facts.visibility) or list(facts.visibility.physical_gpus)


def _written(device: Gpu) -> str:
    return "" if device.capability is None else f"{device.capability[0]}.{device.capability[1]}"


def _targets(known: tuple[str, ...], kinds: tuple[str, ...]) -> list[tuple[int, int]]:
    """Return the capabilities of the given kinds: (8, 0) of "sm_80", (12, 0) of "compute_120"."""
    matches = (re.fullmatch(r"(sm|compute)_(\d+)(\d)[af]?", one) for one in known)
    return [(int(one[2]), int(one[3])) for one in matches if one is not None and one[1] in kinds]


def _has_code(device: Gpu, known: tuple[str, ...]) -> bool:
    """Machine code runs on its major version, from its minor version on; `compute_` has it as well as PTX."""
    assert device.capability is not None
    major, minor = device.capability
    return any(one == major and other <= minor for one, other in _targets(known, ("sm", "compute")))


def _can_compile(device: Gpu, known: tuple[str, ...]) -> bool:
    """PTX can be compiled for every capability from its own on."""
    assert device.capability is not None
    return any(target <= device.capability for target in _targets(known, ("compute",)))


CHECKS = (driver, driver_files, driver_version, visible_devices, compute_capability, compute_mode)
