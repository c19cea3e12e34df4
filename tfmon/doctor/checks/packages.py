"""The packages: whether there is one TensorFlow, and what it needs fits it."""

from __future__ import annotations

from tfmon.doctor import remedies
from tfmon.doctor.checks import INSTALL, TENSORFLOW, Finding, broken, check, not_applicable, ok, warning
from tfmon.doctor.facts import Facts
from tfmon.doctor.versions import fits, package, requirements
from tfmon.probes.wheel import BUILDS

_NONE = "no TensorFlow is installed"
_PULLED_IN = {"tensorflow-intel", "tensorflow-macos", "tensorflow-cpu-aws"}
"""Distributions that `tensorflow` itself pulls in on some platforms."""
_NAMED = {"keras": "Keras", "numpy": "NumPy", "protobuf": "protobuf"}


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


@check("requirements", "Its requirements", TENSORFLOW, "Requires-Dist in the METADATA of the distribution")
def required_packages(facts: Facts) -> Finding:
    """Judge every package that TensorFlow says it needs: NumPy, protobuf, Keras and the others."""
    if facts.wheel is None or not facts.build.requires:
        return not_applicable(_NONE if facts.wheel is None else "this TensorFlow does not say")
    wanted = requirements(facts)
    absent = [one for one in wanted if not facts.version_of(one.name)]
    wrong = [one for one in wanted if one not in absent and not fits(facts.version_of(one.name), one.specifier)]
    if not absent and not wrong:
        known = [f"{title} {version}" for name, title in _NAMED.items() if (version := facts.version_of(name))]
        return ok(f"all {len(wanted)} are met, {', '.join(known)} among them")
    texts = [f"{one.name} is missing" for one in absent]
    texts += [f"{one.name} {facts.version_of(one.name)} is not {one.specifier}" for one in wrong]
    fix = remedies.install(facts, *map(package, (*absent, *wrong)))
    works = facts.imported is not None and facts.imported.works
    verdict = broken if absent and not works else warning
    return verdict("; ".join(texts[:3]) + ("; …" if texts[3:] else ""), "what its metadata requires", fix, *texts)


@check("keras-backend", "Keras backend", TENSORFLOW, "https://keras.io/getting_started/#configuring-your-backend")
def keras_backend(facts: Facts) -> Finding:
    """Judge whether Keras is set to another backend."""
    backend = facts.environ.get("KERAS_BACKEND", "")
    if backend not in ("", "tensorflow"):
        fix = "unset KERAS_BACKEND (or set it to tensorflow)"
        return broken(f"KERAS_BACKEND={backend}: Keras does not compute with TensorFlow", "tensorflow", fix)
    return ok("tensorflow")


CHECKS = (tensorflow_installed, several_tensorflows, shadowing, required_packages, keras_backend)
