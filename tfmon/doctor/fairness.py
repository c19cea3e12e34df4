"""Whether each lane has the whole machine and a free GPU at full clocks."""

from __future__ import annotations

from tfmon.doctor.checks import FAIRNESS, KERNEL, NVIDIA, Checks, Finding, not_applicable, ok, warning
from tfmon.doctor.facts import Facts
from tfmon.model.folder_views import COPY, IN_PLACE, OVERLAY
from tfmon.model.gpu_samples import ALARM, WARNING, GpuSample
from tfmon.model.readings import Missing, known, mean
from tfmon.units import cores, memory, percent

CHECKS = Checks()

LEAST_AVAILABLE_BYTES = 2 * 1024**3
"""Two small lanes use about this much."""
OTHERS_SHARE, STEAL_SHARE = 0.1, 0.02
BUSY_PCT, USED_SHARE = 10.0, 0.1
"""A GPU above either is not free."""
_NONE = "no NVIDIA GPU"
_SLOWING = {
    "CUDA_LAUNCH_BLOCKING": ("1", "every kernel launch waits for its end"),
    "NVIDIA_TF32_OVERRIDE": ("0", "the GPU lane computes without TF32"),
    "TF_CUDNN_DETERMINISTIC": ("1", "slower kernels are chosen on the GPU"),
    "TF_DETERMINISTIC_OPS": ("1", "slower kernels are chosen"),
    "TF_ENABLE_ONEDNN_OPTS": ("0", "the CPU lane computes without oneDNN"),
}
_THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


@CHECKS.add("GPU free", FAIRNESS, "nvmlDeviceGetSamples, nvmlDeviceGetMemoryInfo")
def _gpu_free(facts: Facts) -> Finding:
    seen = _samples(facts)
    if not seen:
        return not_applicable(_NONE)
    for gpu_sample in seen:
        listed = gpu_sample.processes.used_by_pid
        if listed and set(facts.own_pids).issuperset(listed):
            continue
        busy, used, total = (
            known(gpu_sample.load.busy_pct),
            known(gpu_sample.memory.used_bytes),
            known(gpu_sample.memory.total_bytes),
        )
        uses = []
        if busy is not None and busy >= BUSY_PCT:
            uses.append(f"busy {percent(busy)}")
        if used and total and used >= USED_SHARE * total:
            uses.append(f"{memory(used)} of {memory(total)} used")
        if uses:
            result = f"GPU {gpu_sample.index} {gpu_sample.name}: {', '.join(uses)}"
            processes = f"processes: {' '.join(map(str, listed)) or gpu_sample.processes.no_list_reason or 'none'}"
            return warning(result, "a GPU that no other program uses", _freeing(facts, gpu_sample), processes)
    return ok(", ".join(f"GPU {sample.index} {_use(sample)}" for sample in seen))


@CHECKS.add("GPU power limit", FAIRNESS, "nvmlDeviceGetPowerManagementDefaultLimit")
def _gpu_power(facts: Facts) -> Finding:
    limits = [
        (device.index, device.power_limit_w, device.power_default_w)
        for device in facts.gpus
        if device.power_limit_w and device.power_default_w
    ]
    if not limits:
        return not_applicable(_unknown(facts))
    for index, limit_w, default_w in limits:
        if limit_w < 0.98 * default_w:
            fix = f"sudo nvidia-smi -i {index} -pl {default_w:.0f}"
            return warning(f"GPU {index} is limited to {limit_w:.0f} W", f"{default_w:.0f} W, its default", fix)
    return ok(", ".join(f"{limit_w:.0f} W" for _, limit_w, _ in limits))


@CHECKS.add("GPU clocks and link", FAIRNESS, "as the GPU's pane: see docs/numbers.md")
def _gpu_clocks(facts: Facts) -> Finding:
    seen = [sample for sample in _samples(facts) if not isinstance(sample.clocks.reasons, Missing)]
    if not seen:
        return not_applicable(_unknown(facts))
    for gpu_sample in seen:
        if lowered := gpu_sample.clocks.lowered_by(WARNING, ALARM):
            celsius = known(gpu_sample.temperature_c)
            warm = "" if celsius is None else f", {celsius:.0f} °C"
            fix = "cool it, or wait until it has cooled down"
            return warning(f"GPU {gpu_sample.index}: {lowered[0]}{warm}", "full clocks", fix)
        if gpu_sample.link.warning:
            fix = "reseat it, without a riser, or use a slot with all lanes; see lspci -vv"
            return warning(f"GPU {gpu_sample.index}: {gpu_sample.link.warning}", "all lanes", fix)
    return ok("not lowered, and all lanes of the link")


@CHECKS.add("Usable cores", FAIRNESS, f"{KERNEL}cgroup-v2.html#cpu; sched_getaffinity(2)")
def _cores(facts: Facts) -> Finding:
    host = facts.host
    if host.usable_cores >= host.cores:
        return ok(f"all {host.cores}")
    if host.quota_cores is not None and host.quota_cores <= host.usable_cores:
        result = f"a quota of {cores(host.quota_cores)} cores on a machine of {host.cores}"
        fix = "TensorFlow starts a thread for each core all the same: race with --set threads=" + (
            f"{max(1, int(host.quota_cores))}, or raise the quota (docker run --cpus={host.cores})"
        )
        return warning(result, "no quota, or as many threads as it allows", fix)
    fix = "start it without taskset or --cpuset-cpus, or accept a CPU lane with fewer cores"
    return warning(f"{cores(host.usable_cores)} of {host.cores} cores", "all of them", fix)


@CHECKS.add("CPU governor", FAIRNESS, f"{KERNEL}pm/cpufreq.html")
def _governor(facts: Facts) -> Finding:
    if not facts.host.governors:
        return not_applicable("not reported by this system")
    slow = [governor for governor in facts.host.governors if governor in ("powersave", "ondemand", "conservative")]
    names = ", ".join(facts.host.governors)
    if slow:
        fix = "sudo cpupower frequency-set -g performance"
        return warning(names, "performance", fix, "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor")
    return ok(names)


@CHECKS.add("Memory", FAIRNESS, "/proc/meminfo; memory.max of the control group")
def _memory(facts: Facts) -> Finding:
    host = facts.host
    if not host.total_bytes:
        return not_applicable("not reported by this system")
    result = f"{memory(host.available_bytes)} of {memory(host.total_bytes)} available"
    if host.available_bytes < LEAST_AVAILABLE_BYTES:
        return warning(
            result, f"{memory(LEAST_AVAILABLE_BYTES)} for two lanes", "end other programs, or race one small lane"
        )
    return ok(result)


@CHECKS.add("Load of others", FAIRNESS, "/proc/stat; in a race, its samples")
def _load(facts: Facts) -> Finding:
    samples, total = facts.host.samples, facts.host.cores
    others_pct = mean(sample.others_cpu_pct for sample in samples)
    if isinstance(others_pct, Missing):
        return not_applicable("not reported by this system")
    result = f"other programs keep {others_pct / 100:.1f} of {total} cores busy"
    source = (
        f"mean of {len(samples)} samples of this race, one a second" if samples[1:] else "during this examination"
    )
    if others_pct > 100 * OTHERS_SHARE * total:
        fix = "end them, or race later; `top` lists them"
        return warning(result, f"under {percent(100 * OTHERS_SHARE)}", fix, source)
    stolen_pct = (known(mean(sample.steal_pct for sample in samples)) or 0.0) / total
    if stolen_pct > 100 * STEAL_SHARE:
        fix = "race on a machine with dedicated cores, or at another time"
        result = f"{percent(stolen_pct)} of the CPU time goes to other machines"
        return warning(result, f"under {percent(100 * STEAL_SHARE)}", fix, source)
    return ok(result, source)


@CHECKS.add("Power source", FAIRNESS, "/sys/class/power_supply")
def _power(facts: Facts) -> Finding:
    if facts.host.on_battery is None:
        return not_applicable("no battery found")
    if facts.host.on_battery:
        return warning("on battery, with lower clocks", "mains", "plug it in")
    return ok("mains")


@CHECKS.add(
    "Environment variables", FAIRNESS, f"{NVIDIA}cuda/cuda-c-programming-guide/#cuda-environment-variables"
)
def _environment(facts: Facts) -> Finding:
    result = [
        f"{name}={value}: {effect}"
        for name, (value, effect) in _SLOWING.items()
        if facts.environ.get(name) == value
    ]
    result += [
        f"{name}={value}: fewer threads than cores"
        for name in _THREADS
        if (value := facts.environ.get(name, "")).isdigit() and 0 < int(value) < facts.host.usable_cores
    ]
    if "xla_cpu" in facts.environ.get("TF_XLA_FLAGS", "") or "auto_jit" in facts.environ.get("TF_XLA_FLAGS", ""):
        result.append(f"TF_XLA_FLAGS={facts.environ['TF_XLA_FLAGS']}: XLA is on where a knob says off")
    if result:
        names = " ".join(text.partition("=")[0] for text in result)
        return warning(
            result[0] + (f" and {len(result) - 1} more" if result[1:] else ""), "unset", f"unset {names}", *result
        )
    return ok("none that changes speed")


@CHECKS.add("Views of the folder", FAIRNESS, f"{KERNEL}../filesystems/overlayfs.html; user_namespaces(7)")
def _views(facts: Facts) -> Finding:
    if facts.view is None:
        return not_applicable("not tried")
    if facts.view.kind == OVERLAY:
        return ok("each lane of a script can have a copy-on-write view of it")
    result = {COPY: "each lane gets a copy", IN_PLACE: "all lanes write to the folder itself"}[facts.view.kind]
    fix = (
        "allow user namespaces (sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu, "
        "user.max_user_namespaces=10000 where it is 0; a container needs --security-opt seccomp=unconfined), "
        "or race in a folder on a local disk"
    )
    return warning(result, "a copy-on-write view for each lane", fix, facts.view.reason)


def _samples(facts: Facts) -> list[GpuSample]:
    samples = {sample.key: sample for sample in facts.samples}
    return [samples[gpu.uuid] for gpu in facts.gpus if gpu.uuid in samples]


def _unknown(facts: Facts) -> str:
    return "not reported by the driver" if facts.visibility.physical_gpus else _NONE


def _use(sample: GpuSample) -> str:
    busy, used = known(sample.load.busy_pct), known(sample.memory.used_bytes)
    text = "busy n/a" if busy is None else f"busy {percent(busy)}"
    return text if used is None else f"{text}, {memory(used)} used"


def _freeing(facts: Facts, sample: GpuSample) -> str:
    free_gpus = [
        candidate
        for candidate in facts.samples
        if candidate.key != sample.key and (known(candidate.load.busy_pct) or 0) < BUSY_PCT
    ]
    if free_gpus:
        return f"use another one: export CUDA_VISIBLE_DEVICES={free_gpus[0].key}"
    return "end what runs there, or wait for it; `nvidia-smi` lists it"
