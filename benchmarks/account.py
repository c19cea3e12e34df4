"""Compare the account of scripts with an independent clock in each script.

    python benchmarks/account.py SCRIPT... [--python PYTHON]

Each script runs once in `tfmon watch`. A clock in the same process times imports, `adapt`, `fit`, `evaluate` and
`predict` by its own wrappers, and `date` times the command. The account must add up to the wall time within 2 %,
and its parts of at least `LEAST` of that time must agree with the clock within 5 %. Otherwise the exit code is 1.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LEAST, OF_WALL, OF_PART = 0.05, 0.02, 0.05
IN_FIT = ("training steps", "validation", "callbacks", "between epochs", "tfmon")
FIRST_STEP = ("first batch", "first run")


class Clock:
    """Times calls by name. Inner calls count for the outer one."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self.inside = False

    @contextlib.contextmanager
    def timing(self, name):
        if self.inside:
            yield
            return
        self.inside, began = True, time.perf_counter()
        try:
            yield
        finally:
            self.inside = False
            self.times[name] = self.times.get(name, 0) + time.perf_counter() - began


def run_with_clock(target: str, script: str) -> None:
    """Run a script in this process, and write its times to a file."""
    clock, own_import, wrapped = Clock(), builtins.__import__, []

    def imports(*args, **kwargs):
        with clock.timing("imports"):
            module = own_import(*args, **kwargs)
        keras = sys.modules.get("keras")
        if not clock.inside and not wrapped and hasattr(keras, "Model"):  # and tfmon has hooked it
            wrapped.append(keras)
            for name in ("fit", "evaluate", "predict"):
                owner = next(kind for kind in keras.Model.__mro__ if name in vars(kind))
                setattr(owner, name, fits(vars(owner)[name]))
            for kind in {one for one in vars(keras.layers).values() if isinstance(one, type)}:
                if "adapt" in vars(kind):
                    kind.adapt = adapts(kind.adapt)
        return module

    def fits(own):
        def fit(*args, **kwargs):
            with clock.timing("fit"):
                return own(*args, **kwargs)  # in fit

        return fit

    def adapts(own):
        def adapt(*args, **kwargs):
            with clock.timing("adapt"):
                return own(*args, **kwargs)  # in adapt

        return adapt

    builtins.__import__ = imports
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        Path(target).write_text(json.dumps(clock.times))


def compare(script: str, python: str) -> bool:
    """Run a script in a lane, print its account beside the clock, and return whether they agree."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(script).resolve()
        command = f"{python} {Path(__file__).resolve()} --clock {folder}/times {path} >/dev/null 2>&1"
        words = f"cd {path.parent}; (date +%s.%N; {command}; date +%s.%N) >{folder}/dates"
        watch = [sys.executable, "-m", "tfmon", "watch", "--headless", "--json", "--", "/bin/sh", "-c", words]
        printed = subprocess.run(watch, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        began, ended = map(float, Path(folder, "dates").read_text().split())
        own = json.loads(Path(folder, "times").read_text())
    account = json.loads(printed.stdout[printed.stdout.index("{") :])["lanes"][0]["account"]
    rows = account["rows"]

    def seconds(wanted):
        return sum(row["seconds"] for row in rows if wanted(row))

    parts = {
        "imports": seconds(lambda row: row["part"] in ("imports", "loading tfmon's hooks")),
        "adapt": seconds(lambda row: "# in adapt" in (row["place"] or "")),
        "fit": seconds(
            lambda row: (
                "# in fit" in (row["place"] or "")
                or (row["group"] in IN_FIT and row["part"] != "loading tfmon's hooks")
                or (row["part"] in FIRST_STEP and not row["place"])
            )
        ),
    }
    wall, total = ended - began, seconds(lambda _row: True)
    agrees = abs(total / wall - 1) <= OF_WALL and abs(account["wall_s"] / wall - 1) <= OF_WALL
    line = f"{Path(script).name:40} wall {wall:6.2f} s, account {total:6.2f} ({100 * (total / wall - 1):+.1f} %)"
    for name, own_s in own.items():
        off = parts[name] / own_s - 1 if own_s else 0.0
        if own_s >= LEAST * wall:
            agrees &= abs(off) <= OF_PART
            line += f"; {name} {own_s:.2f} s, account {parts[name]:.2f} ({100 * off:+.1f} %)"
    unsplit = seconds(lambda row: row["part"] == "not split" and row["group"] != "between epochs")
    print(f"{line}; not split {100 * unsplit / wall:.1f} %{'' if agrees else '  <-- differs'}", flush=True)
    return agrees


def main() -> int:
    words = sys.argv[1:]
    python = words.pop(words.index("--python") + 1) if "--python" in words else sys.executable
    results = [compare(script, python) for script in words if script != "--python"]
    return int(not all(results))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--clock"]:
        where, sys.argv = sys.argv[2], sys.argv[3:]
        sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
        run_with_clock(where, sys.argv[0])
    else:
        raise SystemExit(main())
