"""The interpreter and the system: whether any TensorFlow can run in them, and whether it could use a GPU."""

from __future__ import annotations

from tfmon.doctor import remedies
from tfmon.doctor.checks import (
    GPU,
    INSTALL,
    NVIDIA,
    TENSORFLOW,
    Check,
    Finding,
    broken,
    check,
    not_applicable,
    ok,
    warning,
)
from tfmon.doctor.facts import Facts
from tfmon.doctor.versions import fits, release
from tfmon.probes.obstacles import system_obstacle, wheel_obstacle

_APPLE = "https://developer.apple.com/documentation/apple-silicon/"
_APPLE_FIX = "install an arm64 Python (python.org, `arch -arm64 brew`, Miniforge) and make a new environment"


@check("python", "Python", TENSORFLOW, f"{INSTALL}#software_requirements")
def python_answers(facts: Facts) -> Finding:
    """Judge whether the interpreter works, and whether there is a TensorFlow for its version."""
    python = facts.python
    if python.error:
        return broken(
            f"{python.executable}: {python.error}",
            "a Python that runs",
            "name another one with --python, or make its environment again",
        )
    version = ".".join(map(str, python.version))
    found = f"{version}, {python.machine}, {python.executable}"
    low, high = remedies.SUPPORTED_PYTHON
    if facts.build.requires_python and not fits(version, facts.build.requires_python):
        expected = f"Python {facts.build.requires_python} for the TensorFlow installed"
        return broken(found, expected, remedies.other_python(facts), f"prefix {python.prefix}")
    if not low <= python.version[:2] <= high and facts.wheel is None:
        expected = f"Python {low[0]}.{low[1]} to {high[0]}.{high[1]}, for which TensorFlow has wheels"
        return broken(found, expected, remedies.other_python(facts), f"prefix {python.prefix}")
    return ok(found, f"prefix {python.prefix}", *(f"path {folder}" for folder in python.path))


@check("python-build", "Python build", TENSORFLOW, f"{INSTALL}#package_location")
def python_build(facts: Facts) -> Finding:
    """Judge builds of Python for which there are no wheels: 32-bit, free-threaded, and with musl on Linux."""
    if facts.python.error:
        return not_applicable("the interpreter does not answer")
    if facts.python.bits != 64:
        return broken(f"{facts.python.bits} bits", "a 64-bit Python", remedies.other_python(facts))
    if facts.python.free_threaded:
        return broken("free-threaded, without the GIL", "a Python with the GIL", remedies.other_python(facts))
    if facts.platform.system == "Linux" and not facts.python.libc:
        return broken(
            "not GNU's C library (Alpine?)",
            "glibc: TensorFlow has no wheels for musl",
            "use an image based on Debian or Ubuntu, such as python:3.12-slim",
        )
    return ok(" ".join(("64 bits", facts.python.libc)).strip())


@check("rosetta", "Rosetta", TENSORFLOW, f"{_APPLE}about-the-rosetta-translation-environment")
def rosetta(facts: Facts) -> Finding:
    """Judge an Intel Python on Apple Silicon: its TensorFlow is slow or ends with an illegal instruction."""
    if facts.platform.system != "Darwin":
        return not_applicable("no Mac")
    if facts.python.translated:
        return broken(
            f"{facts.python.executable} is built for Intel and runs translated by Rosetta",
            "a Python for arm64",
            _APPLE_FIX,
            "sysctl.proc_translated = 1",
        )
    return ok(f"runs natively ({facts.python.machine})", "sysctl.proc_translated = 0")


@check("cpu-instructions", "CPU instructions", TENSORFLOW, f"{INSTALL}#hardware_requirements")
def cpu_instructions(facts: Facts) -> Finding:
    """Judge whether an Intel or AMD processor has AVX, which the wheels are compiled for."""
    flags = facts.host.cpu_flags
    if facts.platform.machine not in ("x86_64", "AMD64") or flags is None:
        return not_applicable("x86 under Linux only")
    if "avx" not in flags:
        return broken(
            "the processor has no AVX, or the virtual machine hides it",
            "AVX: the wheels are compiled for it",
            "let the virtual machine pass the host's CPU on (QEMU: -cpu host), or use another machine",
            "/proc/cpuinfo flags",
        )
    known = [name for name in ("avx", "avx2", "fma", "avx512f", "amx_bf16") if name in flags]
    return ok(" ".join(known), "/proc/cpuinfo flags")


@check("gpu-system", "A system with GPU support", GPU, f"{INSTALL}")
def gpu_system(facts: Facts) -> Finding:
    """Judge whether any TensorFlow supports GPUs on this system."""
    obstacle = system_obstacle(facts.visibility)
    if obstacle is not None:
        return broken(obstacle.reason, "Linux, WSL2 or macOS on Apple Silicon", obstacle.hint)
    return ok(f"{facts.platform.system} {facts.platform.machine}")


@check("gpu-build", "A build with GPU support", GPU, f"{INSTALL}")
def gpu_build(facts: Facts) -> Finding:
    """Judge whether this TensorFlow was built without CUDA."""
    if facts.platform.system != "Linux" or facts.wheel is None:
        return not_applicable("no TensorFlow is installed" if facts.wheel is None else "Linux only")
    obstacle = wheel_obstacle(facts.visibility, facts.wheel)
    if obstacle is not None:
        return broken(
            obstacle.reason, "a build with CUDA", remedies.gpu_build(facts), "build_info: is_cuda_build False"
        )
    if facts.wheel.rocm:
        return ok("ROCm", "build_info: is_rocm_build True")
    if facts.wheel.has_cuda is None:
        fix = "see what TensorFlow itself says below; `tfmon doctor` without --no-import imports it"
        return warning("the wheel does not say", "a build with CUDA", fix, f"{facts.home}/tensorflow")
    build = facts.build
    return ok(
        f"CUDA {build.cuda_version}, cuDNN {build.cudnn_version}", f"built for {' '.join(build.capabilities)}"
    )


@check("metal", "tensorflow-metal", GPU, "https://pypi.org/project/tensorflow-metal/")
def metal(facts: Facts) -> Finding:
    """Judge whether the plug-in for Apple GPUs is there and fits: 1.2.0 fits TensorFlow 2.18 and 2.19 only."""
    if facts.platform.system != "Darwin" or facts.visibility.machine != "arm64":
        return not_applicable("no Apple Silicon")
    wanted = remedies.metal(facts)
    if facts.python.version[:2] > (3, 12):
        fix = "make an environment with Python 3.12: uv venv --python 3.12 tf && uv pip install --python tf "
        found = f"Python {facts.python.version[0]}.{facts.python.version[1]}: tensorflow-metal has no wheel for it"
        return broken(found, "Python 3.9 to 3.12", fix + remedies.tensorflow_package(facts))
    obstacle = wheel_obstacle(facts.visibility, facts.wheel)
    if obstacle is not None or facts.wheel is None:
        return broken(
            obstacle.reason if obstacle else "not installed", f"tensorflow-metal {remedies.METAL}", wanted
        )
    plugin, version = release(facts.wheel.metal), release(facts.wheel.version)
    together = f"tensorflow-metal {facts.wheel.metal} with TensorFlow {facts.wheel.version}"
    if plugin >= (1, 2) and version and not (2, 18) <= version < (2, 20):
        return broken(together, "TensorFlow 2.18 or 2.19 with it", wanted)
    if (1, 1) <= plugin < (1, 2) and version and not (2, 14) <= version < (2, 18):
        return broken(together, "TensorFlow 2.14 to 2.17 with it, or tensorflow-metal 1.2.0", wanted)
    return ok(together)


@check("container", "Container", GPU, f"{NVIDIA}datacenter/cloud-native/container-toolkit/latest/")
def container(facts: Facts) -> Finding:
    """Judge whether a container can use the GPU: the driver's files come from the host."""
    if not facts.platform.container:
        return not_applicable("not in a container")
    kind, nodes = facts.platform.container, facts.driver.nodes
    evidence = (f"container: {kind}", f"device files: {' '.join(nodes) or 'none'}")
    hidden = facts.environ.get("NVIDIA_VISIBLE_DEVICES")
    if hidden in ("void", "none", "") and not facts.visibility.physical_gpus:
        found = f'a {kind} container with NVIDIA_VISIBLE_DEVICES="{hidden}", which gives it no GPU'
        return broken(found, "NVIDIA_VISIBLE_DEVICES=all", remedies.give_gpu(facts), *evidence)
    if facts.visibility.physical_gpus:
        return ok(f"a {kind} container with {len(facts.visibility.physical_gpus)} GPU", *evidence)
    if (
        any(name.startswith("/dev/nvidia") for name in nodes)
        or facts.visibility.driver_loaded
        or facts.visibility.gpu_on_bus
    ):
        found = f"a {kind} container on a host with an NVIDIA GPU, which it cannot use"
        return broken(found, "the GPU and the driver's libraries inside", remedies.give_gpu(facts), *evidence)
    found = f"a {kind} container without a GPU; its host may have one"
    return warning(found, "a GPU inside", f"if the host has one: {remedies.give_gpu(facts)}", *evidence)


@check("wsl", "Windows Subsystem for Linux", GPU, f"{NVIDIA}cuda/wsl-user-guide/")
def wsl(facts: Facts) -> Finding:
    """Judge whether WSL is version 2 and passes the GPU of Windows on."""
    if not facts.platform.wsl:
        return not_applicable("not in WSL")
    if facts.platform.wsl == 1:
        return broken("WSL 1, which has no GPU", "WSL 2", "in Windows: wsl --set-version <distribution> 2")
    if "/dev/dxg" not in facts.driver.nodes:
        fix = "in Windows: install NVIDIA's driver, then `wsl --update` and `wsl --shutdown`"
        return broken("WSL 2 without /dev/dxg", "the GPU of Windows at /dev/dxg", fix)
    note = "with the driver of Windows, which reports no single processes"
    return ok(f"WSL 2, {note}", "/dev/dxg")


PYTHON_CHECKS: tuple[Check, ...] = (python_answers, python_build, rosetta, cpu_instructions)
GPU_CHECKS: tuple[Check, ...] = (gpu_system, gpu_build, metal, container, wsl)
