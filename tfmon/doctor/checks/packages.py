"""The packages: whether there is one TensorFlow, and what it needs fits it."""

from __future__ import annotations

from tfmon.doctor import remedies
from tfmon.doctor.checks import INSTALL, TENSORFLOW, Finding, broken, check, not_applicable, ok, warning
from tfmon.doctor.facts import Facts
from tfmon.doctor.interpreter import Requirement, fits, read_requirement, release, too_old, upper_bound
from tfmon.probes.wheel import BUILDS

_NONE = "no TensorFlow is installed"
_PULLED_IN = {"tensorflow-intel", "tensorflow-macos", "tensorflow-cpu-aws"}
"""Distributions that `tensorflow` itself pulls in on some platforms."""
_SEPARATE = {"numpy", "protobuf"}


@check("tensorflow", "TensorFlow", TENSORFLOW, f"{INSTALL}")
def tensorflow_installed(facts: Facts) -> Finding:
    """Judge whether there is a TensorFlow to import."""
    if facts.python.error:
        return not_applicable("the interpreter does not answer")
    if facts.wheel is None:
        left = [one.folder for one in facts.distributions if one.name in BUILDS]
        found = "installed by its metadata, but its files are gone" if left else "not installed"
        fix = remedies.install(facts, remedies.tensorflow_package(facts))
        return broken(found, "a TensorFlow in this environment", fix, *left, f"looked in {facts.python.prefix}")
    wheel = facts.wheel
    return ok(f"{wheel.distribution} {wheel.version}".strip(), facts.home)


@check(
    "several-tensorflows", "One TensorFlow", TENSORFLOW, "https://github.com/tensorflow/tensorflow/issues/45430"
)
def several_tensorflows(facts: Facts) -> Finding:
    """Judge whether two distributions have written their files over each other."""
    found = {one.name: one for one in reversed(facts.distributions) if one.name in BUILDS}
    if len(found) > 1:
        found = {name: one for name, one in found.items() if name not in _PULLED_IN} or found
    twice = [one for one in facts.distributions if one.name in BUILDS and one != found.get(one.name, one)]
    names = ", ".join(f"{one.name} {one.version}" for one in found.values())
    if not found:
        return not_applicable(_NONE)
    if len(found) > 1:
        return broken(
            f"{names}: they overwrite each other's files",
            "one of them",
            remedies.reinstall(facts, tuple(found), remedies.tensorflow_package(facts)),
            *(one.folder for one in found.values()),
        )
    if twice:
        first = next(iter(found.values()))
        return warning(
            f"{first.name} {first.version} is used; {twice[0].version} comes later on the path",
            "one of them",
            f"take the other out of PYTHONPATH, or {remedies.uninstall(facts, first.name)}",
            *(one.folder for one in (first, *twice)),
        )
    return ok(names)


@check("shadowing", "No shadowing file", TENSORFLOW, "https://docs.python.org/3/library/sys_path_init.html")
def shadowing(facts: Facts) -> Finding:
    """Judge whether a file or folder named like TensorFlow is imported instead."""
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


@check(
    "wheel-tags",
    "Built for this Python",
    TENSORFLOW,
    "https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/",
)
def wheel_tags(facts: Facts) -> Finding:
    """Judge whether the wheel was built for this version of Python and this processor."""
    if not facts.build.tags or facts.python.error:
        return not_applicable("the wheel does not say")
    major, minor, _ = facts.python.version
    fix = remedies.reinstall(facts, (_name(facts),), remedies.tensorflow_package(facts))
    wanted = f"cp{major}{minor}"
    if not any(tag.startswith((wanted, "py3")) for tag in facts.build.tags):
        found = f"built for {facts.build.tags[0]}, but this is Python {major}.{minor}"
        return broken(found, f"a wheel for {wanted}", fix, *facts.build.tags)
    machines = {"x86_64": ("x86_64", "amd64"), "aarch64": ("aarch64",), "arm64": ("arm64", "universal2")}
    suffixes = machines.get(facts.python.machine)
    if suffixes and not any(tag.endswith((*suffixes, "any")) for tag in facts.build.tags):
        found = f"built for {facts.build.tags[0]}, but this Python is for {facts.python.machine}"
        return broken(found, f"a wheel for {facts.python.machine}", fix, *facts.build.tags)
    return ok(facts.build.tags[0])


@check("numpy", "NumPy", TENSORFLOW, "https://numpy.org/doc/stable/numpy_2_0_migration_guide.html")
def numpy(facts: Facts) -> Finding:
    """Judge whether NumPy fits this TensorFlow; builds before 2.18 were made for NumPy 1 and fail with 2."""
    if facts.wheel is None:
        return not_applicable(_NONE)
    version = facts.version_of("numpy")
    if not version:
        return broken("not installed", "NumPy: TensorFlow needs it", _missing(facts, "numpy"))
    tensorflow = release(facts.wheel.version)
    if () < tensorflow < (2, 18) and release(version) >= (2,) and not _imports(facts):
        found = f"NumPy {version} with TensorFlow {facts.wheel.version}"
        return broken(found, "NumPy 1: this TensorFlow was built for it", remedies.install(facts, "'numpy<2'"))
    return _judge(facts, "numpy", "NumPy", version)


@check("protobuf", "protobuf", TENSORFLOW, "https://protobuf.dev/support/cross-version-runtime-guarantee/")
def protobuf(facts: Facts) -> Finding:
    """Judge whether protobuf fits: it fails if it is older than what TensorFlow was generated with."""
    if facts.wheel is None:
        return not_applicable(_NONE)
    version = facts.version_of("protobuf")
    if not version:
        return broken("not installed", "protobuf: TensorFlow needs it", _missing(facts, "protobuf"))
    if facts.environ.get("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION") == "python":
        return warning(
            f"{version}, but PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python makes it slow",
            "its own, fast implementation",
            "unset PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION",
        )
    required = _requirement(facts, "protobuf")
    if required is not None and not fits(version, required.allowed) and not _imports(facts):
        limit = upper_bound(required.allowed)
        far_too_new = bool(limit) and release(version)[0] > limit[0]
        if too_old(version, required.allowed) or far_too_new or limit[:1] == (3,):
            return broken(version, f"protobuf {required.allowed}", _fitting(facts, required))
    return _judge(facts, "protobuf", "protobuf", version)


@check("requirements", "Its other requirements", TENSORFLOW, "Requires-Dist in the METADATA of the distribution")
def requirements(facts: Facts) -> Finding:
    """Judge every other package that TensorFlow says it needs."""
    if facts.wheel is None or not facts.build.requires:
        return not_applicable(_NONE if facts.wheel is None else "this TensorFlow does not say")
    wanted = [one for one in _requirements(facts) if one.name not in _SEPARATE]
    absent = [one for one in wanted if not facts.version_of(one.name)]
    wrong = [one for one in wanted if one not in absent and not fits(facts.version_of(one.name), one.allowed)]
    if not absent and not wrong:
        keras = facts.version_of("keras")
        return ok(f"all {len(wanted)} are met" + (f", Keras {keras} among them" if keras else ""))
    words = [f"{one.name} is missing" for one in absent]
    words += [f"{one.name} {facts.version_of(one.name)} is not {one.allowed}" for one in wrong]
    fix = remedies.install(facts, *(f"'{one.name}{one.allowed}'" for one in (*absent, *wrong)))
    verdict = broken if absent and not _imports(facts) else warning
    return verdict("; ".join(words[:3]) + ("; …" if words[3:] else ""), "what its metadata requires", fix, *words)


@check("keras-backend", "Keras backend", TENSORFLOW, "https://keras.io/getting_started/#configuring-your-backend")
def keras_backend(facts: Facts) -> Finding:
    """Judge whether Keras is set to another backend."""
    backend = facts.environ.get("KERAS_BACKEND", "")
    if backend not in ("", "tensorflow"):
        fix = "unset KERAS_BACKEND (or set it to tensorflow)"
        return broken(f"KERAS_BACKEND={backend}: Keras does not compute with TensorFlow", "tensorflow", fix)
    return ok("tensorflow")


def _judge(facts: Facts, name: str, title: str, version: str) -> Finding:
    required = _requirement(facts, name)
    if required is None or fits(version, required.allowed):
        return ok(
            version, f"TensorFlow requires {title} {required.allowed}" if required else "no version required"
        )
    return warning(version, f"{title} {required.allowed}", _fitting(facts, required))


def _missing(facts: Facts, name: str) -> str:
    required = _requirement(facts, name)
    return remedies.install(facts, name) if required is None else _fitting(facts, required)


def _fitting(facts: Facts, required: Requirement) -> str:
    return remedies.install(facts, f"'{required.name}{required.allowed}'")


def _requirement(facts: Facts, name: str) -> Requirement | None:
    return next((one for one in _requirements(facts) if one.name == name), None)


def _requirements(facts: Facts) -> list[Requirement]:
    environment = {
        "python_version": ".".join(map(str, facts.python.version[:2])),
        "sys_platform": facts.platform.system.lower(),
        "platform_system": facts.platform.system,
        "platform_machine": facts.platform.machine,
    }
    found = (read_requirement(line, environment) for line in facts.build.requires)
    return [one for one in found if one is not None]


def _imports(facts: Facts) -> bool:
    return facts.imported is not None and facts.imported.works


def _name(facts: Facts) -> str:
    return facts.wheel.distribution if facts.wheel is not None else "tensorflow"


CHECKS = (
    tensorflow_installed,
    several_tensorflows,
    shadowing,
    wheel_tags,
    numpy,
    protobuf,
    requirements,
    keras_backend,
)
