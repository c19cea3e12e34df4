"""What `make test-pythons` does: run the tests that are marked `pythons` on the oldest and the newest Python.

The supported versions are the classifiers in pyproject.toml. The oldest gets the lowest versions of tfmon's
requirements, the newest gets the newest. `--all` also tests the versions between them. A version that is not
installed is reported and is not a failure. `make test` runs all tests on the version of the environment that
starts this.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / ".venv-pythons"
UV = (sys.executable, "-m", "uv")


def main() -> int:
    """Run the tests on each version; return 1 if one failed or no version was found."""
    versions = supported((ROOT / "pyproject.toml").read_text("utf-8"))
    if "--all" not in sys.argv:
        versions = [versions[0], versions[-1]]
    codes: list[int] = []
    said: list[str] = []
    for version in versions:
        lowest = version == versions[0]
        if version == ".".join(map(str, sys.version_info[:2])) and not lowest:
            said.append(f"Python {version}: left to make test")
            continue
        python = next((candidate for candidate in candidates(version) if runs(candidate, version)), None)
        if python is None:
            said.append(f"Python {version}: not found")
            continue
        print(f"Python {version}: {python}", flush=True)
        folder = install(python, version, lowest=lowest)
        began = time.monotonic()
        codes.append(test(folder))
        requirements, result = "lowest" if lowest else "newest", "FAILED" if codes[-1] else "passed"
        seconds = time.monotonic() - began
        said.append(f"Python {version}, {requirements} requirements: {result} in {seconds:.0f} s")
    print("\n".join(said))
    return int(any(codes) or not codes)


def supported(project: str) -> list[str]:
    """Return the versions that the classifiers name, the oldest first."""
    found = re.findall(r'"Programming Language :: Python :: (\d+\.\d+)"', project)
    return sorted(found, key=lambda version: [int(part) for part in version.split(".")])


def candidates(version: str) -> Iterator[str]:
    """Yield possible interpreters of a version: on PATH, of pyenv, and found by uv."""
    name = f"python{version}"
    if (found := shutil.which(name)) is not None:
        yield found
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from (str(path) for path in sorted(pyenv.glob(f"versions/{version}*/bin/{name}"), reverse=True))
    find = (*UV, "python", "find", "--quiet", "--system", "--no-python-downloads", version)
    done = subprocess.run(find, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        yield done.stdout.strip()


def runs(python: str, version: str) -> bool:
    """Return whether an interpreter runs and has the version: pyenv's shims may do neither."""
    words = (python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError:
        return False
    return done.stdout.strip() == version


def install(python: str, version: str, *, lowest: bool) -> Path:
    """Return an environment with tfmon and the packages of its tests."""
    folder = ENVIRONMENTS / version
    subprocess.run((*UV, "venv", "--quiet", "--allow-existing", "--python", python, str(folder)), check=True)
    resolution = "lowest-direct" if lowest else "highest"
    words = ("pip", "install", "--quiet", "--python", str(folder), "--resolution", resolution, "-e", ".[test]")
    subprocess.run((*UV, *words), cwd=ROOT, check=True)
    return folder


def test(folder: Path) -> int:
    """Run the marked tests in an environment; return the exit code."""
    # Other files may import packages that only the tests of one Python need.
    files = [
        str(path) for path in (ROOT / "tests").rglob("test_*.py") if "mark.pythons" in path.read_text("utf-8")
    ]
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "-m", "pythons", *sorted(files))
    return subprocess.run((str(folder / "bin" / "python"), *words), cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
