"""The machine in a race: whether the CPU lane has all of it, and nothing else runs."""

from __future__ import annotations

from tfmon.doctor.facts import Facts
from tfmon.doctor.findings import FAIRNESS, Check, Finding, check, not_applicable, ok, warning
from tfmon.units import cores, memory, percent

LEAST_AVAILABLE_BYTES = 2 * 1024**3
"""Two lanes hold about so much before they train on anything large."""
OTHERS_SHARE, STEAL_SHARE = 0.1, 0.02
SWAP_USED_BYTES = 64 * 1024**2
_SLOWING = {
    "CUDA_LAUNCH_BLOCKING": ("1", "each kernel is waited for"),
    "NVIDIA_TF32_OVERRIDE": ("0", "the GPU lane computes without TF32"),
    "TF_CUDNN_DETERMINISTIC": ("1", "slower kernels are chosen on the GPU"),
    "TF_DETERMINISTIC_OPS": ("1", "slower kernels are chosen"),
    "TF_ENABLE_ONEDNN_OPTS": ("0", "the CPU lane computes without oneDNN"),
}
_THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


@check(
    "cores",
    "Usable cores",
    FAIRNESS,
    "https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu; sched_getaffinity(2)",
)
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
        fix = "start it without taskset or --cpuset-cpus, or take the CPU lane for what it is"
        return warning(f"{host.affinity} of {host.cores} cores", "all of them", fix, *evidence)
    return ok(f"all {host.cores}", *evidence)


@check("governor", "CPU governor", FAIRNESS, "https://docs.kernel.org/admin-guide/pm/cpufreq.html")
def governor(facts: Facts) -> Finding:
    """Judge whether the processor takes its time to speed up."""
    if not facts.host.governors:
        return not_applicable("the system does not tell")
    slow = [one for one in facts.host.governors if one in ("powersave", "ondemand", "conservative")]
    names = ", ".join(facts.host.governors)
    if slow:
        fix = "sudo cpupower frequency-set -g performance"
        return warning(names, "performance", fix, "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor")
    return ok(names)


@check("turbo", "CPU boost", FAIRNESS, "https://docs.kernel.org/admin-guide/pm/intel_pstate.html")
def turbo(facts: Facts) -> Finding:
    """Judge whether the processor may run above its base clock."""
    if facts.host.turbo is None:
        return not_applicable("the system does not tell")
    if not facts.host.turbo:
        fix = "echo 0 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo (or 1 in cpufreq/boost)"
        return warning("off: the CPU lane is slower than it could be", "on, unless you want steady clocks", fix)
    return ok("on")


@check("memory", "Memory", FAIRNESS, "/proc/meminfo; memory.max of the control group")
def free_memory(facts: Facts) -> Finding:
    """Judge whether two lanes find room."""
    host = facts.host
    if not host.total_bytes:
        return not_applicable("the system does not tell")
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
        fix = "end what takes the memory, then empty the swap: sudo swapoff -a && sudo swapon -a"
        return warning(f"{memory(used)} in use", "none in use", fix)
    return ok("not in use" if used <= 0 else f"{memory(used)} in use")


@check("load", "Load of others", FAIRNESS, "/proc/stat, over 0.3 s or more")
def load(facts: Facts) -> Finding:
    """Judge whether other programs keep cores busy."""
    busy, total = facts.host.others_cores, facts.host.cores
    if busy is None:
        return not_applicable("the system does not tell")
    found = f"other programs keep {busy:.1f} of {total} cores busy"
    if busy > OTHERS_SHARE * total:
        return warning(found, f"under {percent(100 * OTHERS_SHARE)}", "end them, or race later; `top` lists them")
    return ok(found)


@check("steal", "Stolen time", FAIRNESS, "/proc/stat, column steal")
def steal(facts: Facts) -> Finding:
    """Judge whether a hypervisor gives this machine's time to others."""
    share = facts.host.steal_share
    if share is None:
        return not_applicable("the system does not tell")
    if share > STEAL_SHARE:
        fix = "race on a machine with cores of its own, or at another time"
        return warning(f"{percent(100 * share)}: the host is oversubscribed", "none", fix)
    return ok(percent(100 * share))


@check("power", "Power source", FAIRNESS, "/sys/class/power_supply")
def power(facts: Facts) -> Finding:
    """Judge whether a laptop runs on its battery."""
    if facts.host.on_battery is None:
        return not_applicable("no battery is seen")
    if facts.host.on_battery:
        return warning("on battery: clocks are held down", "mains", "plug it in")
    return ok("mains")


@check(
    "environment",
    "Environment variables",
    FAIRNESS,
    "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables",
)
def environment(facts: Facts) -> Finding:
    """Judge variables that make one lane slower, or one thread do the work of all."""
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


CHECKS: tuple[Check, ...] = (usable_cores, governor, turbo, free_memory, swap, load, steal, power, environment)
