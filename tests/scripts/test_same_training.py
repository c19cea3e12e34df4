"""A script trains the same in a lane as alone: exit code, output, files and weights to the bit.

Each case is drawn: oddities of a process, flags of its interpreter, and the shapes of training that it runs one
after the other. `TFMON_SAME=100` draws that many cases, each time the same ones; `TFMON_SAME_SEED` draws
others. `make test` runs the first one, with two shapes, and `make test-all` the others.
"""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import HANGS_S

from . import odd_script

pytestmark = [pytest.mark.tensorflow, pytest.mark.trainer]

SCRIPT = Path(odd_script.__file__)
CASES, SHAPES_OF_A_CASE, SHAPES_OF_THE_FIRST = int(os.environ.get("TFMON_SAME", "5")), 7, 2
SEED = os.environ.get("TFMON_SAME_SEED", "0")
FLAGS = ("", "-X dev", "-W error::ResourceWarning", "-O", "-u", "-B", "-X importtime=0", "-m runpy")
ENDS = ("", "exit-3", "exit-text", "exit-true", "raises", "interrupts", "aborts")
SETTINGS = {
    "TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1", "PYTHONHASHSEED": "0", "CUDA_VISIBLE_DEVICES": "-1",
}  # fmt: skip
"""Variables under which two plain runs are equal to the bit."""

NOISY = (
    pytest.param("", "logs_placement,mixed_precision,raises", "fit_padded", id="logged"),
    pytest.param("", "raises", "fails_in_every_way", id="errors"),
)
"""Cases with TensorFlow's own log, whose shapes are not drawn."""
CHANGES = (
    (r"^.*(?:[IWE]0000 00:00|log messages before absl|tensorflow/core/|Could not find cuda).*\n", ""),
    (r"0x[0-9a-f]+", "ADDRESS"),
    (r"\b\d+ms\b|\b\d+s\b", "TIME"),
    (r"_\d+\b", "_NUMBER"),
    (r"__autograph_generated_file\w+", "GENERATED"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+", "NOW"),
)
"""What differs between two runs without tfmon: addresses, times, numbers of functions, lines of its log."""


def masked(text: str) -> str:
    for pattern, by in CHANGES:
        text = re.sub(pattern, by, text, flags=re.MULTILINE)
    return text


def drawn() -> list[object]:
    """Return flags, oddities and shapes of each case, drawn so that every one of them is used early."""
    draw = random.Random(SEED)
    oddities = [*odd_script.ODDITIES, *odd_script.AFTER_IMPORT, *odd_script.AT_THE_END]
    noisy = {shape for *_, shape in (case.values for case in NOISY)}
    every = {"shape": [shape for shape in odd_script.SHAPES if shape not in noisy], "oddity": oddities}
    left: dict[str, list[str]] = {"shape": [], "oddity": []}

    def more(kind: str, count: int) -> list[str]:
        while len(left[kind]) < count:
            left[kind] += draw.sample(every[kind], len(every[kind]))
        taken, left[kind] = left[kind][:count], left[kind][count:]
        return list(dict.fromkeys(taken))

    return [
        pytest.param(
            FLAGS[number % len(FLAGS)],
            ",".join([*more("oddity", 6), ENDS[number % len(ENDS)]]),
            ",".join(more("shape", SHAPES_OF_A_CASE if number else SHAPES_OF_THE_FIRST)),
            marks=pytest.mark.slow if number else (),
        )
        for number in range(CASES)
    ]


def files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): masked(path.read_bytes().decode("latin-1"))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("out", "err")
    }


@pytest.mark.parametrize(("flags", "oddities", "shapes"), [*NOISY, *drawn()])
def test_training_is_the_same_as_without_tfmon(watch, tmp_path, flags, oddities, shapes):
    run = f"-c 'import runpy,sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name=\"__main__\")' {SCRIPT}"
    words = f"{run if 'runpy' in flags else f'{flags} {SCRIPT}'} {oddities} {shapes}"
    folders = {}
    for name in ("alone", "watched"):
        folders[name] = tmp_path / name
        folders[name].mkdir()
    line = f"cd {tmp_path}/{{0}} && exec {sys.executable} {words} >out 2>err </dev/null"
    logs = {"TF_CPP_MIN_LOG_LEVEL": "0"} if (flags, oddities, shapes) in [case.values for case in NOISY] else {}
    settings = {**SETTINGS, **logs}
    environment = {**os.environ, **settings}
    alone = subprocess.run(["/bin/sh", "-c", line.format("alone")], env=environment, timeout=HANGS_S, check=False)
    race = watch("/bin/sh", "-c", line.format("watched"), environment=settings)
    race.until(lambda: race.lane.end.event is not None, "the end")
    for stream in ("out", "err"):
        one, other = (masked((folders[name] / stream).read_text()) for name in ("alone", "watched"))
        assert other == one, (race.lane.end.event, race.lane.trouble)
    assert race.lane.end.event.exit_code == (alone.returncode if alone.returncode >= 0 else None)
    assert files(folders["watched"]) == files(folders["alone"])
    # A script that closes all descriptors after its first training may have reported no window by then.
    assert race.lane.totals.steps or "closes_descriptors" in oddities, "it was watched"
