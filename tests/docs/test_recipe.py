"""The recipe for continuous integration, as it stands on the page, finds a change that makes a package slower."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCENARIO = """
from tfmon.trainer import Scenario


class Ours(Scenario):
    batch_size = 8
"""
PYTHON = f"""#!/bin/sh
shift
export STOPPED=1e9 FASTER=batch_size=8:FACTOR
exec "{sys.executable}" "{ROOT / "tests" / "lanes" / "children" / "trainer.py"}" "$@"
"""
"""The interpreter of a side: its lanes train nothing, at a fixed speed."""


def step(name: str) -> str:
    page = (ROOT / "docs" / "python.md").read_text()
    lines = page.partition(f"- name: {name}\n")[2].partition("run: |\n")[2].splitlines()
    most = len(lines[0]) - len(lines[0].lstrip())
    end = next(at for at, line in enumerate(lines) if line.strip() and len(line) - len(line.lstrip()) < most)
    return textwrap.dedent("\n".join(lines[:end]))


@pytest.mark.slow
@pytest.mark.process
def test_a_change_that_makes_a_package_slower_fails(tmp_path):
    for side, factor in (("base", "1"), ("head", "0.02")):
        python = tmp_path / side / ".venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(PYTHON.replace("FACTOR", factor))
        python.chmod(0o755)
        (tmp_path / side / "scenarios").mkdir()
        (tmp_path / side / "scenarios" / "ours.py").write_text(SCENARIO)
    race = step("Race both alternately")
    assert "1 2 3 4 5" in race and "--seconds 10" in race
    shorter = race.replace("1 2 3 4 5", "1").replace("--seconds 10", "--seconds 3")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}
    environment["TFMON_RECORDINGS"] = str(tmp_path / "recordings")

    def run(text: str) -> subprocess.CompletedProcess[str]:
        words, head = ["bash", "-e", "-o", "pipefail", "-c", text], tmp_path / "head"
        return subprocess.run(words, cwd=head, env=environment, capture_output=True, text=True, check=False)

    raced = run(shorter)
    assert raced.returncode == 0, raced.stderr
    judged = run(step("Is it slower?"))
    assert judged.returncode == 4, judged
    assert "slower by more than 15 %" in (tmp_path / "summary").read_text()
