"""A fair race: whether each lane has the whole machine and a free GPU at full clocks, and nothing else runs."""

from __future__ import annotations

from tfmon.doctor.checks import FAIRNESS, KERNEL, NVIDIA, Check, Finding, check, not_applicable, ok, warning
from tfmon.doctor.checks.nvidia import visible_devices_of
from tfmon.doctor.facts import Facts, GpuFacts
from tfmon.model.views import COPY, IN_PLACE, OVERLAY
from tfmon.probes.nvidia.power import HW_SLOWDOWN, INFO, explain
from tfmon.units import cores, memory, percent

LEAST_AVAILABLE_BYTES = 2 * 1024**3
"""Two lanes use about this much before they train on anything large."""
OTHERS_SHARE, STEAL_SHARE = 0.1, 0.02
SWAP_USED_BYTES = 64 * 1024**2
BUSY_PCT, USED_SHARE = 10.0, 0.1
"""A GPU that is busier, or has more of its memory used, is not free."""
_NONE = "no NVIDIA GPU"
_SLOWING = {
    "CUDA_LAUNCH_BLOCKING": ("1", "every kernel launch waits for its end"),
    "NVIDIA_TF32_OVERRIDE": ("0", "the GPU lane computes without TF32"),
    "TF_CUDNN_DETERMINISTIC": ("1", "slower kernels are chosen on the GPU"),
    "TF_DETERMINISTIC_OPS": ("1", "slower kernels are chosen"),
    "TF_ENABLE_ONEDNN_OPTS": ("0", "the CPU lane computes without oneDNN"),
}
_THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


@check("cores", "Usable cores", FAIRNESS, f"{KERNEL}cgroup-v2.html#cpu; sched_getaffinity(2)")
def usable_cores(facts: Facts) -> Finding:
    """Judge whether a quota or an affinity leaves a lane less than the machine has."""
    host = facts.host
    evidence = (
        f"cores {host.cores}, affinity {host.affinity}",
        f"quota {'none' if host.quota_cores is None else cores(host.quota_cores)}",
        "" if host.throttled_share is None else f"used up in {percent(100 * host.throttled_share)} of its periods",
    )
    if host.quota_cores is not None and host.quota_cores < min(host.cores, host.affinity):
        found = f"a quota of {cores(host.quota_cores)} cores on a machine of {host.cores}"
        fix = "TensorFlow starts a thread for each core all the same: race with --set threads=" + (
            f"{max(1, int(host.quota_cores))}, or raise the quota (docker run --cpus={host.cores})"
        )
        return warning(found, "no quota, or as many threads as it allows", fix, *evidence)
    if host.affinity < host.cores:
        fix = "start it without taskset or --cpuset-cpus, or accept a CPU lane with fewer cores"
        return warning(f"{host.affinity} of {host.cores} cores", "all of them", fix, *evidence)
    return ok(f"all {host.cores}", *evidence)


@check("governor", "CPU governor", FAIRNESS, f"{KERNEL}pm/cpufreq.html")
def governor(facts: Facts) -> Finding:
    """Judge whether the processor is slow to raise its clocks."""
    if not facts.host.governors:
        return not_applicable("not reported by this system")
    slow = [one for one in facts.host.governors if one in ("powersave", "ondemand", "conservative")]
    names = ", ".join(facts.host.governors)
    if slow:
        fix = "sudo cpupower frequency-set -g performance"
        return warning(names, "performance", fix, "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor")
    return ok(names)


@check("turbo", "CPU boost", FAIRNESS, f"{KERNEL}pm/intel_pstate.html")
def turbo(facts: Facts) -> Finding:
    """Judge whether the processor may run above its base clock."""
    if facts.host.turbo is None:
        return not_applicable("not reported by this system")
    if not facts.host.turbo:
        fix = "echo 0 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo (or 1 in cpufreq/boost)"
        return warning("off: the CPU lane is slower than it could be", "on, unless you want steady clocks", fix)
    return ok("on")


@check("memory", "Memory", FAIRNESS, "/proc/meminfo; memory.max of the control group")
def free_memory(facts: Facts) -> Finding:
    """Judge whether there is enough memory for two lanes."""
    host = facts.host
    if not host.total_bytes:
        return not_applicable("not reported by this system")
    found = f"{memory(host.available_bytes)} of {memory(host.total_bytes)} available"
    if host.available_bytes < LEAST_AVAILABLE_BYTES:
        return warning(
            found, f"{memory(LEAST_AVAILABLE_BYTES)} for two lanes", "end other programs, or race one small lane"
        )
    return ok(found)


@check("swap", "Swap", FAIRNESS, "/proc/meminfo")
def swap(facts: Facts) -> Finding:
    """Judge whether memory has been written to disk."""
    used = facts.host.swap_used_bytes
    if used >= SWAP_USED_BYTES:
        fix = "end what uses the memory, then empty the swap: sudo swapoff -a && sudo swapon -a"
        return warning(f"{memory(used)} used", "none used", fix)
    return ok("not used" if used <= 0 else f"{memory(used)} used")


@check(
    "load",
    "Load of others",
    FAIRNESS,
    "/proc/stat; in a race, its samples",
)
def load(facts: Facts) -> Finding:
    """Judge whether other programs keep cores busy."""
    others, total = facts.host.others, facts.host.cores
    if others.cores is None:
        return not_applicable("not reported by this system")
    found = f"other programs keep {others.cores:.1f} of {total} cores busy"
    if others.cores > OTHERS_SHARE * total:
        fix = "end them, or race later; `top` lists them"
        return warning(found, f"under {percent(100 * OTHERS_SHARE)}", fix, others.source)
    return ok(found, others.source)


@check("steal", "Stolen time", FAIRNESS, "/proc/stat, column steal")
def steal(facts: Facts) -> Finding:
    """Judge whether a hypervisor gives this machine's time to others."""
    share, source = facts.host.others.stolen_share, facts.host.others.source
    if share is None:
        return not_applicable("not reported by this system")
    if share > STEAL_SHARE:
        fix = "race on a machine with dedicated cores, or at another time"
        return warning(f"{percent(100 * share)}: the host is oversubscribed", "none", fix, source)
    return ok(percent(100 * share), source)


@check("power", "Power source", FAIRNESS, "/sys/class/power_supply")
def power(facts: Facts) -> Finding:
    """Judge whether a laptop runs on its battery."""
    if facts.host.on_battery is None:
        return not_applicable("no battery found")
    if facts.host.on_battery:
        return warning("on battery, with lower clocks", "mains", "plug it in")
    return ok("mains")


@check(
    "environment",
    "Environment variables",
    FAIRNESS,
    f"{NVIDIA}cuda/cuda-c-programming-guide/#cuda-environment-variables",
)
def environment(facts: Facts) -> Finding:
    """Judge variables that make one lane slower or leave it fewer threads."""
    found = [
        f"{name}={value}: {effect}"
        for name, (value, effect) in _SLOWING.items()
        if facts.environ.get(name) == value
    ]
    found += [
        f"{name}={value}: fewer threads than cores"
        for name in _THREADS
        if (value := facts.environ.get(name, "")).isdigit() and 0 < int(value) < facts.host.affinity
    ]
    if "xla_cpu" in facts.environ.get("TF_XLA_FLAGS", "") or "auto_jit" in facts.environ.get("TF_XLA_FLAGS", ""):
        found.append(f"TF_XLA_FLAGS={facts.environ['TF_XLA_FLAGS']}: XLA is on where a knob says off")
    if found:
        names = " ".join(text.partition("=")[0] for text in found)
        return warning(
            found[0] + (f" and {len(found) - 1} more" if found[1:] else ""), "unset", f"unset {names}", *found
        )
    return ok("none that changes speed")


@check("gpu-free", "GPU free", FAIRNESS, "nvmlDeviceGetUtilizationRates, nvmlDeviceGetMemoryInfo")
def gpu_free(facts: Facts) -> Finding:
    """Judge whether other programs use the GPU."""
    devices = visible_devices_of(facts)
    if not devices:
        return not_applicable(_NONE)
    for one in devices:
        words = []
        if one.processes and facts.own_pids.issuperset(one.processes):
            continue  # only the lanes of this race use it
        if one.busy_pct is not None and one.busy_pct >= BUSY_PCT:
            words.append(f"busy {percent(one.busy_pct)}")
        if one.used_bytes and one.total_bytes and one.used_bytes >= USED_SHARE * one.total_bytes:
            words.append(f"{memory(one.used_bytes)} of {memory(one.total_bytes)} used")
        if words:
            found = f"GPU {one.index} {one.name}: {', '.join(words)}"
            evidence = f"processes: {_processes(one)}"
            return warning(found, "a GPU that no other program uses", _freeing(facts, one), evidence)
    return ok(", ".join(f"GPU {one.index} {_use(one)}" for one in devices), *(_processes(one) for one in devices))


@check(
    "gpu-power",
    "GPU power limit",
    FAIRNESS,
    "nvmlDeviceGetEnforcedPowerLimit, nvmlDeviceGetPowerManagementDefaultLimit",
)
def gpu_power(facts: Facts) -> Finding:
    """Judge whether the power limit is below the GPU's default."""
    known = [one for one in visible_devices_of(facts) if one.power_limit_w and one.power_default_w]
    if not known:
        return not_applicable(_NONE if not facts.driver.devices else "not reported by the driver")
    for one in known:
        assert one.power_limit_w is not None and one.power_default_w is not None
        if one.power_limit_w < 0.98 * one.power_default_w:
            found = f"GPU {one.index} is limited to {one.power_limit_w:.0f} W"
            fix = f"sudo nvidia-smi -i {one.index} -pl {one.power_default_w:.0f}"
            return warning(found, f"{one.power_default_w:.0f} W, its default", fix)
    return ok(", ".join(f"{one.power_limit_w:.0f} W" for one in known))


@check("gpu-persistence", "GPU persistence mode", FAIRNESS, f"{NVIDIA}deploy/driver-persistence/")
def gpu_persistence(facts: Facts) -> Finding:
    """Judge whether the driver unloads the GPU between programs, so that each start takes seconds."""
    known = [one for one in visible_devices_of(facts) if one.persistence is not None]
    if not known or facts.platform.wsl:
        return not_applicable(_NONE if not facts.driver.devices else "not reported by the driver")
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
        return not_applicable(_NONE if not facts.driver.devices else "not reported by the driver")
    for one in known:
        assert one.pcie_width is not None and one.pcie_width_max is not None
        busy = one.busy_pct is not None and one.busy_pct > 50
        if one.pcie_width < one.pcie_width_max:
            found = f"GPU {one.index} has {one.pcie_width} lanes"
            fix = "reseat it, without a riser, or use a slot with all lanes; see lspci -vv"
            return warning(found, f"{one.pcie_width_max}, as slot and GPU could have", fix, _link(one))
        if busy and (one.pcie_generation or 0) < (one.pcie_generation_max or 0):
            found = f"GPU {one.index} runs at PCIe {one.pcie_generation} while it is busy"
            fix = "allow it in the firmware's PCIe settings; a riser may limit it, too"
            return warning(found, f"PCIe {one.pcie_generation_max}", fix, _link(one))
    return ok(", ".join(_link(one) for one in known))


@check("gpu-throttling", "GPU clocks", FAIRNESS, "nvmlDeviceGetCurrentClocksEventReasons")
def gpu_throttling(facts: Facts) -> Finding:
    """Judge whether heat or the power supply lowers the clocks at this moment."""
    known = [one for one in visible_devices_of(facts) if one.clock_reasons is not None]
    if not known:
        return not_applicable(_NONE if not facts.driver.devices else "not reported by the driver")
    for one in known:
        # A hardware slowdown shows for an instant when the GPU changes its state; its causes do not.
        reasons = [
            reason.text
            for reason in explain((one.clock_reasons or 0) & ~HW_SLOWDOWN, below=False)
            if reason.level != INFO
        ]
        if reasons:
            warm = "" if one.temperature_c is None else f", {one.temperature_c:.0f} °C"
            fix = "cool it, or wait until it has cooled down"
            evidence = f"reasons 0x{one.clock_reasons:x}"
            return warning(f"GPU {one.index}: {reasons[0]}{warm}", "full clocks", fix, evidence)
    return ok("not lowered", *(f"GPU {one.index}: reasons 0x{one.clock_reasons:x}" for one in known))


@check("views", "Views of the folder", FAIRNESS, f"{KERNEL}../filesystems/overlayfs.html; user_namespaces(7)")
def views(facts: Facts) -> Finding:
    """Judge whether each lane of a script can have a copy-on-write view of the working folder."""
    if facts.view is None:
        return not_applicable("not tried")
    if facts.view.kind == OVERLAY:
        return ok("each lane of a script can have a copy-on-write view of it")
    found = {COPY: "each lane gets a copy", IN_PLACE: "all lanes write to the folder itself"}[facts.view.kind]
    fix = (
        "allow user namespaces (sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu; a container "
    )
    fix += "needs --security-opt seccomp=unconfined), or race in a folder on a local disk"
    return warning(found, "a copy-on-write view for each lane", fix, facts.view.reason)


def _use(device: GpuFacts) -> str:
    busy = "busy n/a" if device.busy_pct is None else f"busy {percent(device.busy_pct)}"
    return busy if device.used_bytes is None else f"{busy}, {memory(device.used_bytes)} used"


def _processes(device: GpuFacts) -> str:
    if device.processes is None:
        return "unknown"
    return " ".join(map(str, device.processes)) or "none"


def _freeing(facts: Facts, device: GpuFacts) -> str:
    others = [one for one in facts.driver.devices if one.index != device.index and (one.busy_pct or 0) < BUSY_PCT]
    if others:
        return f"use another one: export CUDA_VISIBLE_DEVICES={others[0].uuid}"
    return "end what runs there, or wait for it; `nvidia-smi` lists it"


def _link(device: GpuFacts) -> str:
    generation = "" if device.pcie_generation is None else f"PCIe {device.pcie_generation} "
    return f"{generation}x{device.pcie_width}"


CHECKS: tuple[Check, ...] = (
    *(gpu_free, gpu_power, gpu_persistence, gpu_link, gpu_throttling),
    *(usable_cores, governor, turbo, free_memory, swap, load, steal, power, environment, views),
)
