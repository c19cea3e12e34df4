"""The GPU in a race: whether it is free, and may run as fast as it can."""

from __future__ import annotations

from tfmon.doctor.checks.nvidia import visible_devices_of
from tfmon.doctor.facts import Device, Facts
from tfmon.doctor.findings import FAIRNESS, Check, Finding, check, not_applicable, ok, warning
from tfmon.probes.nvidia_clocks import HW_SLOWDOWN, INFO, explain
from tfmon.units import memory, percent

BUSY_PCT, HELD_SHARE = 10.0, 0.1
"""A GPU that is busier, or of whose memory more is taken, is not free."""
_NONE = "no NVIDIA GPU"


@check("gpu-free", "GPU free", FAIRNESS, "nvmlDeviceGetUtilizationRates, nvmlDeviceGetMemoryInfo")
def gpu_free(facts: Facts) -> Finding:
    """Judge whether others use the GPU."""
    devices = visible_devices_of(facts)
    if not devices:
        return not_applicable(_NONE)
    for one in devices:
        words = []
        if one.busy_pct is not None and one.busy_pct >= BUSY_PCT:
            words.append(f"busy {percent(one.busy_pct)}")
        if one.used_bytes and one.total_bytes and one.used_bytes >= HELD_SHARE * one.total_bytes:
            words.append(f"{memory(one.used_bytes)} of {memory(one.total_bytes)} taken")
        if words:
            found = f"GPU {one.index} {one.name}: {', '.join(words)}"
            evidence = f"processes: {_processes(one)}"
            return warning(found, "a GPU that nobody else uses", _freeing(facts, one), evidence)
    return ok(", ".join(f"GPU {one.index} {_use(one)}" for one in devices), *(_processes(one) for one in devices))


@check(
    "gpu-power",
    "GPU power limit",
    FAIRNESS,
    "nvmlDeviceGetEnforcedPowerLimit, nvmlDeviceGetPowerManagementDefaultLimit",
)
def gpu_power(facts: Facts) -> Finding:
    """Judge whether somebody has set the power limit below the board's own."""
    known = [one for one in visible_devices_of(facts) if one.power_limit_w and one.power_default_w]
    if not known:
        return not_applicable(_NONE if not facts.driver.devices else "the driver does not tell")
    for one in known:
        assert one.power_limit_w is not None and one.power_default_w is not None
        if one.power_limit_w < 0.98 * one.power_default_w:
            found = f"GPU {one.index} is limited to {one.power_limit_w:.0f} W"
            fix = f"sudo nvidia-smi -i {one.index} -pl {one.power_default_w:.0f}"
            return warning(found, f"{one.power_default_w:.0f} W, its default", fix)
    return ok(", ".join(f"{one.power_limit_w:.0f} W" for one in known))


@check("gpu-persistence", "GPU persistence mode", FAIRNESS, "https://docs.nvidia.com/deploy/driver-persistence/")
def gpu_persistence(facts: Facts) -> Finding:
    """Judge whether the driver lets go of the GPU between programs, so that each start takes seconds."""
    known = [one for one in visible_devices_of(facts) if one.persistence is not None]
    if not known or facts.platform.wsl:
        return not_applicable(_NONE if not facts.driver.devices else "the driver does not tell")
    off = [one for one in known if not one.persistence]
    if off:
        fix = "sudo systemctl start nvidia-persistenced, or sudo nvidia-smi -pm 1"
        return warning(f"off on GPU {off[0].index}: each start of a program takes seconds", "on", fix)
    return ok("on")


@check("gpu-link", "GPU's PCIe link", FAIRNESS, "nvmlDeviceGetCurrPcieLinkWidth, nvmlDeviceGetMaxPcieLinkWidth")
def gpu_link(facts: Facts) -> Finding:
    """Judge whether the link has fewer lanes than slot and GPU could have; its generation drops when idle."""
    known = [one for one in visible_devices_of(facts) if one.pcie_width and one.pcie_width_max]
    if not known:
        return not_applicable(_NONE if not facts.driver.devices else "the driver does not tell")
    for one in known:
        assert one.pcie_width is not None and one.pcie_width_max is not None
        busy = one.busy_pct is not None and one.busy_pct > 50
        if one.pcie_width < one.pcie_width_max:
            found = f"GPU {one.index} has {one.pcie_width} lanes"
            fix = "seat it anew, without a riser, or use the slot with all lanes; see lspci -vv"
            return warning(found, f"{one.pcie_width_max}, as slot and GPU could have", fix, _link(one))
        if busy and (one.pcie_generation or 0) < (one.pcie_generation_max or 0):
            found = f"GPU {one.index} runs at PCIe {one.pcie_generation} while it is busy"
            fix = "allow it in the firmware's settings for PCIe; a riser may hold it down, too"
            return warning(found, f"PCIe {one.pcie_generation_max}", fix, _link(one))
    return ok(", ".join(_link(one) for one in known))


@check("gpu-throttling", "GPU clocks", FAIRNESS, "nvmlDeviceGetCurrentClocksEventReasons")
def gpu_throttling(facts: Facts) -> Finding:
    """Judge whether heat or the power supply holds the clocks down at this moment."""
    known = [one for one in visible_devices_of(facts) if one.clock_reasons is not None]
    if not known:
        return not_applicable(_NONE if not facts.driver.devices else "the driver does not tell")
    for one in known:
        # A hardware slowdown shows for an instant when the GPU changes its state; its causes do not.
        reasons = [
            reason.text
            for reason in explain((one.clock_reasons or 0) & ~HW_SLOWDOWN, below=False)
            if reason.level != INFO
        ]
        if reasons:
            warm = "" if one.temperature_c is None else f", {one.temperature_c:.0f} °C"
            fix = "cool it, or wait: a race would measure the heat"
            evidence = f"reasons 0x{one.clock_reasons:x}"
            return warning(f"GPU {one.index}: {reasons[0]}{warm}", "clocks that nothing holds down", fix, evidence)
    return ok("not held down", *(f"GPU {one.index}: reasons 0x{one.clock_reasons:x}" for one in known))


def _use(device: Device) -> str:
    busy = "busy n/a" if device.busy_pct is None else f"busy {percent(device.busy_pct)}"
    return busy if device.used_bytes is None else f"{busy}, {memory(device.used_bytes)} taken"


def _processes(device: Device) -> str:
    if device.processes is None:
        return "not told"
    return " ".join(map(str, device.processes)) or "none"


def _freeing(facts: Facts, device: Device) -> str:
    others = [one for one in facts.driver.devices if one.index != device.index and (one.busy_pct or 0) < BUSY_PCT]
    if others:
        return f"use another one: export CUDA_VISIBLE_DEVICES={others[0].uuid}"
    return "end what runs there, or wait for it; `nvidia-smi` lists it"


def _link(device: Device) -> str:
    generation = "" if device.pcie_generation is None else f"PCIe {device.pcie_generation} "
    return f"{generation}x{device.pcie_width}"


CHECKS: tuple[Check, ...] = (gpu_free, gpu_power, gpu_persistence, gpu_link, gpu_throttling)
