"""TensorFlow in another environment is found without a process, and offered in place of an import error."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tfmon.api import elsewhere
from tfmon.errors import TfmonError


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A home folder and a working folder with nothing in them, and an interpreter without TensorFlow."""
    home, work = tmp_path / "home", tmp_path / "work" / "project"
    home.mkdir()
    work.mkdir(parents=True)
    monkeypatch.setattr(Path, "home", lambda: home)
    monkeypatch.chdir(work)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(elsewhere.importlib.util, "find_spec", lambda name: None)
    return tmp_path


def environment(prefix: Path, *packages: str) -> Path:
    python = prefix / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("")
    python.chmod(0o755)
    for name in packages:
        package = prefix / "lib" / "python3.12" / "site-packages" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
    return python


def test_the_nearest_environments_with_tensorflow_are_named(machine):
    environment(machine / "work" / ".venv", "numpy")
    beside = environment(machine / "work" / "project" / "venv", "tensorflow")
    pyenv = environment(machine / "home" / ".pyenv" / "versions" / "3.12.1", "tensorflow")
    conda = environment(machine / "home" / "miniconda3" / "envs" / "my tf", "tensorflow")
    assert elsewhere.find_tensorflow() == [beside, pyenv, conda]
    with pytest.raises(TfmonError) as refused:
        elsewhere.need_tensorflow(Path(sys.executable))
    assert refused.value.message == f"{sys.executable} has no TensorFlow"
    assert f"--python {beside} (also in {pyenv}, '{conda}')" in refused.value.hint
    assert "\n" not in refused.value.line


def test_the_active_environment_comes_first(machine, monkeypatch):
    environment(machine / "work" / "project" / "venv", "tensorflow")
    active = environment(machine / "elsewhere", "tensorflow")
    monkeypatch.setenv("VIRTUAL_ENV", str(machine / "elsewhere"))
    assert elsewhere.find_tensorflow()[0] == active


def test_without_any_it_says_how_to_install_it(machine):
    with pytest.raises(TfmonError, match="no other Python with it was found") as refused:
        elsewhere.need_tensorflow(Path(sys.executable))
    assert refused.value.hint.endswith("-m pip install tensorflow")


def test_an_interpreter_that_was_named_answers_for_itself(machine):
    elsewhere.need_tensorflow(Path("/usr/bin/python-of-the-user"))
