"""Interpreter, packages and system."""

from __future__ import annotations

from tfmon.doctor import remedies
from tfmon.doctor.checks import (
    GPU,
    INSTALL,
    NVIDIA,
    TENSORFLOW,
    Checks,
    Finding,
    broken,
    not_applicable,
    ok,
    warning,
)
from tfmon.doctor.facts import Facts
from tfmon.doctor.remedies import fits, misfits, package, release, requirements
from tfmon.probes.interpreter import BUILDS

CHECKS = Checks()


@CHECKS.add("Python", TENSORFLOW, f"{INSTALL}#software_requirements")
def _python(facts: Facts) -> Finding:
    python = facts.python
    if python.error:
        return broken(
            f"{python.executable}: {python.error}",
            "a Python that runs",
            "name another one with --python, or make its environment again",
        )
    version = ".".join(map(str, python.version))
    result = f"{version}, {python.machine}, {python.executable}"
    low, high = remedies.SUPPORTED_PYTHON
    if facts.build.requires_python and not fits(version, facts.build.requires_python):
        expected = f"Python {facts.build.requires_python} for the TensorFlow installed"
        return broken(result, expected, remedies.other_python(facts), f"prefix {python.prefix}")
    if not low <= python.version[:2] <= high and facts.wheel is None:
        expected = f"Python {low[0]}.{low[1]} to {high[0]}.{high[1]}, for which TensorFlow has wheels"
        return broken(result, expected, remedies.other_python(facts), f"prefix {python.prefix}")
    return ok(result, f"prefix {python.prefix}", *(f"path {folder}" for folder in python.path))


@CHECKS.add("Python build", TENSORFLOW, f"{INSTALL}#package_location")
def _python_build(facts: Facts) -> Finding:
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
    return ok(", ".join(filter(None, ("64 bits", facts.python.libc))))


_NONE = "no TensorFlow is installed"
_PULLED_IN = {"tensorflow-intel", "tensorflow-macos", "tensorflow-cpu-aws"}
"""`tensorflow` requires these on some platforms."""
_NAMED = {"keras": "Keras", "numpy": "NumPy", "protobuf": "protobuf"}


@CHECKS.add("TensorFlow", TENSORFLOW, f"{INSTALL}")
def _tensorflow(facts: Facts) -> Finding:
    if facts.python.error:
        return not_applicable("the interpreter does not answer")
    if facts.wheel is None:
        left = [distribution.folder for distribution in facts.distributions if distribution.name in BUILDS]
        result = "installed by its metadata, but its files are gone" if left else "not installed"
        fix = remedies.install(facts, remedies.tensorflow_package(facts))
        return broken(result, "a TensorFlow in this environment", fix, *left, f"looked in {facts.python.prefix}")
    wheel = facts.wheel
    return ok(f"{wheel.distribution} {wheel.version}".strip(), facts.build.home)


@CHECKS.add("One TensorFlow", TENSORFLOW, "https://github.com/tensorflow/tensorflow/issues/45430")
def _several_tensorflows(facts: Facts) -> Finding:
    builds = [dist for dist in facts.distributions if dist.name in BUILDS]
    result = {dist.name: dist for dist in reversed(builds)}
    if len(result) > 1:
        result = {name: dist for name, dist in result.items() if name not in _PULLED_IN} or result
    twice = [dist for dist in builds if dist != result.get(dist.name, dist)]
    names = ", ".join(f"{dist.name} {dist.version}" for dist in result.values())
    if not result:
        return not_applicable(_NONE)
    if len(result) > 1:
        return broken(
            f"{names}: they overwrite each other's files",
            "one of them",
            remedies.reinstall(facts, tuple(result), remedies.tensorflow_package(facts)),
            *(dist.folder for dist in result.values()),
        )
    if twice:
        first = next(iter(result.values()))
        return warning(
            f"{first.name} {first.version} is used; {twice[0].version} comes later on the path",
            "one of them",
            f"take the other out of PYTHONPATH, or {remedies.uninstall(facts, first.name)}",
            *(dist.folder for dist in (first, *twice)),
        )
    return ok(names)


@CHECKS.add("No shadowing file", TENSORFLOW, "https://docs.python.org/3/library/sys_path_init.html")
def _shadowing(facts: Facts) -> Finding:
    if facts.shadows:
        return broken(
            f"{facts.shadows[0]} is imported instead of TensorFlow, everywhere",
            "nothing else named tensorflow on the import path",
            f"rename it, or take its folder out of PYTHONPATH: mv {facts.shadows[0]} {_renamed(facts.shadows[0])}",
            *facts.shadows,
        )
    if facts.local_shadows:
        first = facts.local_shadows[0]
        return broken(
            f"{first} is imported instead of TensorFlow by every script that starts in its folder",
            "nothing named tensorflow beside your scripts",
            f"rename it: mv {first} {_renamed(first)}",
            *facts.local_shadows,
        )
    return ok("no other file or folder is named tensorflow")


def _renamed(path: str) -> str:
    return path.replace("tensorflow.py", "my_tensorflow.py") if path.endswith(".py") else f"{path}_mine"


@CHECKS.add("Its requirements", TENSORFLOW, "Requires-Dist in the METADATA of the distribution")
def _requirements(facts: Facts) -> Finding:
    if facts.wheel is None or not facts.build.requires:
        return not_applicable(_NONE if facts.wheel is None else "this TensorFlow does not say")
    wanted = requirements(facts)
    absent = [requirement for requirement in wanted if not facts.version_of(requirement.name)]
    wrong = misfits(facts, wanted)
    if not absent and not wrong:
        known = [f"{title} {version}" for name, title in _NAMED.items() if (version := facts.version_of(name))]
        return ok(f"all {len(wanted)} are met, {', '.join(known)} among them")
    texts = [*(f"{requirement.name} is missing" for requirement in absent), *wrong.values()]
    fix = remedies.install(facts, *map(package, (*absent, *wrong)))
    works = facts.imported is not None and facts.imported.works
    verdict = broken if absent and not works else warning
    return verdict("; ".join(texts[:3]) + ("; …" if texts[3:] else ""), "what its metadata requires", fix, *texts)


@CHECKS.add("Keras backend", TENSORFLOW, "https://keras.io/getting_started/#configuring-your-backend")
def _keras_backend(facts: Facts) -> Finding:
    backend = facts.environ.get("KERAS_BACKEND", "")
    if backend not in ("", "tensorflow"):
        fix = "unset KERAS_BACKEND (or set it to tensorflow)"
        return broken(f"KERAS_BACKEND={backend}: Keras does not compute with TensorFlow", "tensorflow", fix)
    return ok("tensorflow")


@CHECKS.add("A build with GPU support", GPU, f"{INSTALL}")
def _gpu_build(facts: Facts) -> Finding:
    if facts.platform.system != "Linux" or facts.wheel is None:
        return not_applicable("no TensorFlow is installed" if facts.wheel is None else "Linux only")
    obstacle = facts.visibility.wheel_obstacle(facts.wheel)
    if obstacle is not None:
        return broken(
            obstacle.reason, "a build with CUDA", remedies.gpu_build(facts), "build_info: is_cuda_build False"
        )
    if facts.wheel.rocm:
        return ok("ROCm", "build_info: is_rocm_build True")
    if facts.wheel.has_cuda is None:
        fix = "see what TensorFlow itself says below; `tfmon doctor` without --no-import imports it"
        return warning("the wheel does not say", "a build with CUDA", fix, f"{facts.build.home}/tensorflow")
    build = facts.build
    return ok(
        f"CUDA {build.cuda_version}, cuDNN {build.cudnn_version}", f"built for {' '.join(build.capabilities)}"
    )


@CHECKS.add("tensorflow-metal", GPU, "https://pypi.org/project/tensorflow-metal/")
def _metal(facts: Facts) -> Finding:
    if facts.platform.system != "Darwin" or facts.visibility.machine != "arm64":
        return not_applicable("no Apple Silicon")
    wanted = remedies.metal(facts)
    if facts.python.version[:2] > (3, 12):
        fix = "make an environment with Python 3.12: uv venv --python 3.12 tf && uv pip install --python tf "
        version = ".".join(map(str, facts.python.version[:2]))
        result = f"Python {version}: tensorflow-metal has no wheel for it"
        return broken(result, "Python 3.9 to 3.12", fix + remedies.tensorflow_package(facts))
    obstacle = facts.visibility.wheel_obstacle(facts.wheel)
    if obstacle is not None or facts.wheel is None:
        result = obstacle.reason if obstacle else "not installed"
        return broken(result, f"tensorflow-metal {remedies.METAL}", wanted)
    plugin, tensorflow = release(facts.wheel.metal), release(facts.wheel.version)
    together = f"tensorflow-metal {facts.wheel.metal} with TensorFlow {facts.wheel.version}"
    if plugin < (1, 2) or (tensorflow and not (2, 18) <= tensorflow < (2, 20)):
        return broken(together, f"tensorflow-metal {remedies.METAL} with TensorFlow 2.18 or 2.19", wanted)
    return ok(together)


@CHECKS.add("Windows Subsystem for Linux", GPU, f"{NVIDIA}cuda/wsl-user-guide/")
def _wsl(facts: Facts) -> Finding:
    if not facts.platform.wsl:
        return not_applicable("not in WSL")
    if facts.platform.wsl == 1:
        return broken("WSL 1, which has no GPU", "WSL 2", "in Windows: wsl --set-version <distribution> 2")
    if "/dev/dxg" not in facts.visibility.nodes:
        fix = "in Windows: install NVIDIA's driver, then `wsl --update` and `wsl --shutdown`"
        return broken("WSL 2 without /dev/dxg", "the GPU of Windows at /dev/dxg", fix)
    note = "with the driver of Windows, which reports no single processes"
    return ok(f"WSL 2, {note}", "/dev/dxg")
