"""Build wheel and sdist into `dist` for `make release`, and check the contents of a release.

Every problem is a line; with one, nothing is left in `dist` and the exit code is 1.
"""

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).parents[1]
LICENSE, TYPED = "LICENSE", "tfmon/py.typed"


def main() -> int:
    """Build, check, and keep the files without problems; return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder))
        (wheel,), (sdist,) = Path(folder).glob("*.whl"), Path(folder).glob("*.tar.gz")
        problems = [
            *check_version(declared(ROOT), wheel.name, (ROOT / "CHANGELOG.md").read_text("utf-8")),
            *check_wheel(wheel, ROOT),
            *check_sdist(sdist, ROOT),
            *check_description(wheel),
        ]
        for problem in problems:
            print(f"not released: {problem}")
        if problems:
            return 1
        (ROOT / "dist").mkdir(exist_ok=True)
        for built in (wheel, sdist):
            shutil.copy(built, ROOT / "dist")
            print(f"dist/{built.name}: {built.stat().st_size / 2**20:.1f} MiB")
    return 0


def build(folder: Path) -> None:
    """Build the wheel from the sdist, as an installer without a wheel would."""
    hatch = (sys.executable, "-m", "hatchling", "build", "-d", str(folder))
    subprocess.run([*hatch, "-t", "sdist"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (sdist,) = folder.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as unpacked:
        with tarfile.open(sdist) as archive:
            archive.extractall(unpacked, filter="data")
        (source,) = Path(unpacked).iterdir()
        subprocess.run([*hatch, "-t", "wheel"], cwd=source, check=True, stdout=subprocess.DEVNULL)


def declared(root: Path) -> str:
    """Return the version, which stands in one place."""
    found = re.search(r'^__version__ = "(.+)"$', (root / "tfmon" / "version.py").read_text("utf-8"), re.M)
    assert found is not None
    return found[1]


def check_version(version: str, wheel: str, changelog: str) -> Iterator[str]:
    """Yield the problems of the version, which must be the wheel's, and the newest of the changelog."""
    if not wheel.startswith(f"tfmon-{version}-"):
        yield f"the wheel is {wheel}, the version {version}"
    headings = re.findall(r"^## (.+)$", changelog, re.M)
    if not headings or not headings[0].startswith(version):
        newest = headings[0] if headings else "nothing"
        yield f"the newest heading of CHANGELOG.md is {newest!r}, not {version!r} with its date"
    elif not re.fullmatch(re.escape(version) + r" \(\d{4}-\d\d-\d\d\)", headings[0]):
        yield f"the heading {headings[0]!r} of CHANGELOG.md has no date, as in {version} (2026-01-31)"


def check_wheel(wheel: Path, root: Path) -> Iterator[str]:
    """Yield the files that are missing in the wheel or do not belong there."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        entries = next((archive.read(name).decode() for name in names if name.endswith("entry_points.txt")), "")
    wanted = {file.relative_to(root).as_posix() for file in (root / "tfmon").rglob("*") if file.is_file()}
    wanted |= {f"tfmon/scenarios/{file.name}" for file in (root / "scenarios").glob("*.py")}
    wanted = {name for name in wanted if "__pycache__" not in name and not name.endswith(".pyc")}
    yield from (f"the wheel has no {name}" for name in sorted(wanted - names))
    extra = {name for name in names if ".dist-info/" not in name} - wanted
    strange = [name for name in sorted(extra) if not name.startswith("tfmon/") or "__pycache__" in name]
    yield from (f"the wheel has {name}, which does not belong there" for name in strange)
    if not any(name.endswith(f"licenses/{LICENSE}") for name in names):
        yield f"the wheel has no {LICENSE}"
    for entry in ("tfmon = tfmon.__main__:run", "tfmon = tfmon.pytest_plugin"):
        if entry not in entries:
            yield f"the wheel has no entry point {entry}"


def check_sdist(sdist: Path, root: Path) -> Iterator[str]:
    """Yield the files to build and test tfmon that the sdist lacks."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"pyproject.toml", "README.md", "CHANGELOG.md", LICENSE, TYPED, "docs/index.md", "constraints.txt"}
    wanted |= {"acceptance/conftest.py", "benchmarks/common.py", "tests/conftest.py"}
    yield from (f"the sdist has no {name}" for name in sorted(wanted - names))


def check_description(wheel: Path) -> Iterator[str]:
    """Yield the problems of the long description for the package index, and of twine if it is installed."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata: Message = Parser().parsestr(archive.read(name).decode("utf-8"))
    if metadata["Description-Content-Type"] != "text/markdown":
        yield f"the long description is {metadata['Description-Content-Type']}, not text/markdown"
    text = str(metadata.get_payload())
    if not text.strip().startswith("# tfmon"):
        yield "the long description does not begin with the name"
    if len(metadata["Summary"] or "") not in range(20, 513):
        yield "the summary has no 20 to 512 characters"
    command = (sys.executable, "-m", "twine", "check", "--strict", str(wheel))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and "No module named twine" not in done.stderr:
        yield f"twine refuses the long description: {' '.join((done.stdout + done.stderr).split())[-300:]}"


if __name__ == "__main__":
    sys.exit(main())
