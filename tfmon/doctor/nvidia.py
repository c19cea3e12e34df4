"""The NVIDIA driver and CUDA."""

from __future__ import annotations

import re
from pathlib import Path

from tfmon.doctor import remedies
from tfmon.doctor.checks import GPU, NVIDIA, Checks, Finding, broken, not_applicable, ok, warning
from tfmon.doctor.facts import Facts
from tfmon.doctor.remedies import misfits, package, release, requirements
from tfmon.model.spec import SHORT_INSTANCE
from tfmon.probes.cuda import DRIVER, wanted_libraries
from tfmon.probes.nvidia.nvml import DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND

CHECKS = Checks()

_LEAST_DRIVER = {12: "525.60.13", 13: "580"}
"""Oldest driver for a major version of CUDA.

Source: https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
"""
_LEAST_DRIVER_WINDOWS = {12: "527.41", 13: "580"}
_NO_GPU = "the driver lists no GPU"


@CHECKS.add("NVIDIA driver", GPU, f"{NVIDIA}deploy/nvml-api/group__nvmlDeviceQueries.html")
def _driver(facts: Facts) -> Finding:
    if facts.visibility.system != "Linux":
        return not_applicable("Linux only")
    obstacle = facts.visibility.driver_obstacle()
    if obstacle is not None and facts.visibility.amd_gpus and not facts.has_nvidia:
        return not_applicable("the machine has an AMD GPU")
    if obstacle is None:
        names = ", ".join(gpu.name for gpu in facts.visibility.physical_gpus)
        evidence = [f"GPU {gpu.index} {gpu.uuid} {gpu.name}" for gpu in facts.visibility.physical_gpus]
        return ok(f"{facts.visibility.driver or 'there'}: {names}", *evidence)
    failure = facts.visibility.failure
    fix = obstacle.hint
    if failure is not None and failure.code == LIBRARY_NOT_FOUND:
        inside = facts.platform.container and (facts.visibility.driver_loaded or facts.visibility.nodes)
        fix = remedies.give_gpu(facts) if inside else remedies.install_driver(facts)
    if failure is not None and failure.code == DRIVER_NOT_LOADED and facts.platform.container:
        fix = f"on the host: {obstacle.hint}"
    evidence = [
        f"kernel module: {facts.visibility.module_version or 'not loaded'}",
        f"NVIDIA GPU on the PCI bus: {'yes' if facts.visibility.gpu_on_bus else 'not found'}",
        f"device files: {' '.join(facts.visibility.nodes) or 'none'}",
    ]
    return broken(obstacle.reason, "an NVIDIA driver that lists a GPU", fix, *evidence)


@CHECKS.add("Access to the driver", GPU, f"{NVIDIA}datacenter/tesla/driver-installation-guide/")
def _driver_files(facts: Facts) -> Finding:
    if not facts.visibility.nodes:
        return not_applicable("no files of the driver in /dev")
    if facts.visibility.denied:
        denied = " ".join(facts.visibility.denied)
        fix = f"let this user read and write them: sudo chmod a+rw {denied}, or join the group that owns them"
        return broken(f"this user may not open {denied}", "read and write access", fix, *facts.visibility.nodes)
    needed = {"/dev/nvidiactl", "/dev/nvidia-uvm"} - set(facts.visibility.nodes)
    if needed and not facts.platform.wsl:
        absent = " and ".join(sorted(needed))
        fix = remedies.give_gpu(facts) if facts.platform.container else "sudo nvidia-modprobe -u -c 0"
        return warning(f"{absent} missing", "the files that CUDA opens", fix, *facts.visibility.nodes)
    return ok(" ".join(facts.visibility.nodes))


@CHECKS.add("Driver for this CUDA", GPU, f"{NVIDIA}deploy/cuda-compatibility/")
def _driver_version(facts: Facts) -> Finding:
    cuda = release(facts.build.cuda_version)
    if not facts.visibility.physical_gpus or not cuda:
        return not_applicable(_NO_GPU if not facts.visibility.physical_gpus else "this TensorFlow names no CUDA")
    table = _LEAST_DRIVER_WINDOWS if facts.platform.wsl else _LEAST_DRIVER
    least, have = table.get(cuda[0], ""), facts.visibility.driver
    evidence = f"TensorFlow is built with CUDA {facts.build.cuda_version}"
    if least and have and release(have) < release(least):
        location = "in Windows" if facts.platform.wsl else "on the host" if facts.platform.container else "here"
        fix = f"update the NVIDIA driver {location}, then restart"
        return broken(have, f"{least} or newer, for CUDA {cuda[0]}", fix, evidence)
    return ok(have or "unknown", evidence)


@CHECKS.add("Visible GPUs", GPU, f"{NVIDIA}cuda/cuda-c-programming-guide/#cuda-environment-variables")
def _visible_devices(facts: Facts) -> Finding:
    value = facts.visibility.visible
    if facts.platform.system != "Linux":
        return not_applicable("Linux only")
    evidence = "CUDA_VISIBLE_DEVICES is not set" if value is None else f'CUDA_VISIBLE_DEVICES="{value}"'
    if not facts.visibility.physical_gpus:
        return not_applicable(f"{_NO_GPU}; {evidence}")
    obstacle = facts.visibility.hidden_obstacle()
    if obstacle is not None:
        return broken(
            obstacle.reason, "a GPU that is listed", "unset CUDA_VISIBLE_DEVICES, or set it to 0", evidence
        )
    if text := facts.visibility.doubt():
        return warning(text, "an order that is certain", "export CUDA_DEVICE_ORDER=PCI_BUS_ID", evidence)
    seen = facts.visibility.visible_gpus()
    total = len(facts.visibility.physical_gpus)
    together = "--lane gpu:all trains on all of them together" if len(seen) > 1 else ""
    return ok(f"{len(seen)} of {total}: {', '.join(gpu.name for gpu in seen)}", evidence, together)


FAILS_FROM = (10, 0)
"""From this compute capability on, operations without machine code in the wheel fail.

Source: https://github.com/tensorflow/tensorflow/issues/101746 and 89272, TensorFlow 2.16 to 2.21 on 12.0.
"""


@CHECKS.add("GPU in the wheel", GPU, f"{NVIDIA}cuda/cuda-c-programming-guide/#application-compatibility")
def _compute_capability(facts: Facts) -> Finding:
    devices = [(gpu, gpu.capability) for gpu in facts.gpus if gpu.capability is not None]
    known = facts.build.capabilities
    if not devices or not known:
        return not_applicable(_NO_GPU if not facts.visibility.physical_gpus else "compute capability unknown")
    built = f"built for {' '.join(known)}"
    evidence = [f"GPU {gpu.index} {gpu.name}: {_written(capability)}" for gpu, capability in devices]
    for gpu, capability in devices:
        targets = _targets(known, ("sm", "compute"))
        if any(target[0] == capability[0] and target[1] <= capability[1] for target in targets):
            continue
        result = f"{gpu.name} has compute capability {_written(capability)}; this TensorFlow is {built}"
        expected = "machine code for it in the wheel, not only PTX"
        if not any(target <= capability for target in _targets(known, ("compute",))):
            fix = "use an older TensorFlow whose wheel has it, or build TensorFlow for it"
            return broken(result, "a wheel with code for it", fix, *evidence)
        if capability >= FAILS_FROM:
            sign = "operations fail with CUDA_ERROR_INVALID_PTX or CUDA_ERROR_INVALID_HANDLE"
            return broken(result, expected, remedies.NEW_GPU, sign, *evidence)
        fix = "wait once, up to 30 minutes, and keep the result: export CUDA_CACHE_MAXSIZE=4294967296"
        return warning(result, expected, fix, *evidence)
    names = dict.fromkeys(f"{gpu.name} {_written(capability)}" for gpu, capability in devices)
    return ok(", ".join(names), built, *evidence)


@CHECKS.add("Sharing the GPU", GPU, f"{NVIDIA}deploy/nvml-api/group__nvmlDeviceEnumvs.html")
def _compute_mode(facts: Facts) -> Finding:
    devices = facts.gpus
    if not devices:
        return not_applicable(_NO_GPU)
    for device in devices:
        if device.instances == ():
            whole = f"for a whole GPU sudo nvidia-smi -i {device.index} -mig 0"
            fix = f"sudo nvidia-smi mig -i {device.index} -cgi 0 -C, or {whole}"
            return warning(
                f"GPU {device.index} {device.name} is split up (MIG), but has no instance", "an instance", fix
            )
        if device.exclusive:
            fix = f"sudo nvidia-smi -i {device.index} -c DEFAULT"
            return warning(f"GPU {device.index} permits one process at most", "compute mode DEFAULT", fix)
    split = [device for device in devices if device.instances]
    if split:
        instances = [instance for gpu in split for instance in gpu.instances or ()]
        lane_options = ", ".join(
            f"--lane {instance.uuid[:SHORT_INSTANCE]} ({instance.name})" for instance in instances
        )
        return ok(
            f"split up (MIG); a lane takes one instance: {lane_options}",
            *(f"{instance.uuid} {instance.name}" for instance in instances),
        )
    return ok("whole, for several processes")


def _written(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"


def _targets(known: tuple[str, ...], kinds: tuple[str, ...]) -> list[tuple[int, int]]:
    matches = (re.fullmatch(r"(sm|compute)_(\d+)(\d)[af]?", target) for target in known)
    return [(int(match[2]), int(match[3])) for match in matches if match is not None and match[1] in kinds]


_CUDA = "and-cuda"
_NO_CUDA = "only with an NVIDIA GPU and a TensorFlow with CUDA"


@CHECKS.add("libcuda", GPU, f"{NVIDIA}cuda/cuda-driver-api/")
def _cuda_driver_library(facts: Facts) -> Finding:
    library = next((candidate for candidate in facts.libraries or () if candidate.name == DRIVER), None)
    if library is None:
        return not_applicable(_NO_CUDA)
    if library.error:
        if facts.platform.container:
            fix = f"{remedies.give_gpu(facts)}; with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        else:
            fix = remedies.install_driver(facts)
        return broken(f"{DRIVER} cannot be opened", "the driver's CUDA library", fix, library.error)
    return ok(library.path or DRIVER, library.path)


@CHECKS.add(
    "CUDA libraries", GPU, "https://github.com/openxla/xla/blob/main/xla/tsl/platform/default/dso_loader.cc"
)
def _cuda_libraries(facts: Facts) -> Finding:
    if facts.libraries is None:
        return not_applicable(_NO_CUDA)
    wanted = wanted_libraries(facts.build)
    if not wanted:
        return not_applicable(f"the libraries of CUDA {facts.build.cuda_version or '?'} are not known here")
    opened = [library for library in facts.libraries if library.name in wanted]
    lacking = [library for library in opened if library.error]
    evidence = [f"{library.name}: {library.error or library.path or 'opened'}" for library in opened]
    if not opened:
        errors = [library.error for library in facts.libraries if library.error]
        return warning("they could not be opened", "that each one opens", "run it again with -v", *errors)
    if not lacking:
        wheel = all(library.wheel for library in opened)
        return ok(f"all {len(opened)} open, {'from the packages' if wheel else 'from the system'}", *evidence)
    names = ", ".join(library.name for library in lacking)
    first = lacking[0]
    name = first.error.partition(":")[0]
    reason = f" ({name} is missing)" if ".so" in name and Path(name).name != first.name else ""
    result = f"{names} cannot be opened{reason}"
    fix = remedies.cuda_libraries(facts)
    return broken(result, "each of the libraries that TensorFlow opens", fix, *evidence)


@CHECKS.add("Files of XLA", GPU, "https://openxla.org/xla/flags_guidance")
def _xla_files(facts: Facts) -> Finding:
    if facts.xla is None:
        return not_applicable(_NO_CUDA)
    searched = [f"searched: {folder}" for folder in facts.xla.searched]
    missing = [
        name for name, path in (("libdevice.10.bc", facts.xla.libdevice), ("ptxas", facts.xla.ptxas)) if not path
    ]
    if not missing:
        return ok("libdevice.10.bc and ptxas", facts.xla.libdevice, facts.xla.ptxas)
    effect = "steps with XLA fail" if not facts.xla.libdevice else "steps with XLA may compile slowly or fail"
    result = f"{' and '.join(missing)} not found, so {effect}, which no import shows"
    return warning(result, "both in a folder that XLA searches", remedies.xla_files(facts), *searched)


@CHECKS.add("cuDNN", GPU, f"{NVIDIA}deeplearning/cudnn/backend/latest/developer/forward-compatibility.html")
def _cudnn(facts: Facts) -> Finding:
    versions = (library for library in facts.libraries or () if library.version)  # only cuDNN has one
    library = next(versions, None)
    if library is None:
        return not_applicable("no cuDNN was opened" if facts.libraries is not None else _NO_CUDA)
    required = next(
        (requirement for requirement in requirements(facts, _CUDA) if requirement.name.startswith("nvidia-cudnn")),
        None,
    )
    bounds = [] if required is None else [bound.version for bound in required.specifier if bound.operator == ">="]
    have, least = release(library.version), release((bounds or [facts.build.cudnn_version])[0])
    if least and (have[:1] != least[:1] or have[:2] < least[:2]):
        fix = f"install cuDNN {facts.build.cudnn_version}, and take other copies out of LD_LIBRARY_PATH"
        if required is not None:
            fix = remedies.install(facts, "--upgrade", package(required))
        text = ".".join(map(str, least[:3]))
        return broken(f"cuDNN {library.version}", f"{text} or newer of cuDNN {least[0]}", fix, library.path)
    return ok(library.version, library.path)


@CHECKS.add("CUDA packages", GPU, "Requires-Dist of the extra and-cuda in the METADATA of TensorFlow")
def _cuda_packages(facts: Facts) -> Finding:
    wanted = requirements(facts, _CUDA)
    installed = [requirement for requirement in wanted if facts.version_of(requirement.name)]
    if not installed:
        return not_applicable("none is installed")
    wrong = misfits(facts, installed)
    if not wrong:
        return ok(f"{len(installed)} of {len(wanted)}, as TensorFlow requires them")
    texts = list(wrong.values())
    other_frameworks = [name for name in ("torch", "jax", "cupy-cuda12x") if facts.version_of(name)]
    fix = "give TensorFlow an environment of its own" if other_frameworks else remedies.cuda_libraries(facts)
    result = texts[0] + (f" and {len(texts) - 1} more" if texts[1:] else "")
    result += f" ({', '.join(other_frameworks)} is installed here, too)" if other_frameworks else ""
    return warning(result, str(next(iter(wrong)).specifier), fix, *texts)


@CHECKS.add("LD_LIBRARY_PATH", GPU, "https://man7.org/linux/man-pages/man8/ld.so.8.html")
def _library_path(facts: Facts) -> Finding:
    value = facts.environ.get("LD_LIBRARY_PATH", "")
    if facts.platform.system != "Linux":
        return not_applicable("Linux only")
    if not value or facts.libraries is None:
        return ok("not set" if not value else "no CUDA libraries were looked for", value)
    folders = [str(Path(folder)) for folder in value.split(":") if folder]
    taken = [
        library for library in facts.libraries if not library.wheel and str(Path(library.path).parent) in folders
    ]
    packaged = [
        library.name for library in taken if any(Path(facts.build.home).glob(f"nvidia/*/lib/{library.name}"))
    ]
    if packaged:
        result = f"it puts {', '.join(packaged)} before those installed with TensorFlow"
        evidence = [f"{library.name}: {library.path}" for library in taken]
        return warning(result, "the libraries TensorFlow was installed with", "unset LD_LIBRARY_PATH", *evidence)
    return ok("hides no library of TensorFlow", value)
