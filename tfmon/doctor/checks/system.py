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
    if plugin < (1, 2) or (version and not (2, 18) <= version < (2, 20)):
        return broken(together, f"tensorflow-metal {remedies.METAL} with TensorFlow 2.18 or 2.19", wanted)
    return ok(together)


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


PYTHON_CHECKS: tuple[Check, ...] = (python_answers, python_build)
GPU_CHECKS: tuple[Check, ...] = (gpu_system, gpu_build, metal, wsl)
