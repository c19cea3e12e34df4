"""`tfmon.sweep`: many combinations of settings, each raced against the baseline, from Python."""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfmon.analysis.sweep import LEAST_CI, Found
from tfmon.api import arguments
from tfmon.api.arguments import named_as_arguments
from tfmon.api.headless import follow_sweep, pause
from tfmon.api.planner import RaceOptions, interpreter, ray_cluster
from tfmon.api.progress import alone, teller
from tfmon.api.racing import slice_of
from tfmon.api.result import Interval
from tfmon.api.settings import LONGEST_S, resolve
from tfmon.api.sweep import AS_BEFORE, SweepOptions, SweepProgram, check_start
from tfmon.errors import TfmonError
from tfmon.model.knobs import KnobValue, exact
from tfmon.reports.series import to_text
from tfmon.reports.series_json import sweep_to_json

if TYPE_CHECKING:
    from pandas import DataFrame

MOST_CPUS = 100_000


@dataclass(frozen=True, slots=True)
class CombinationResult:
    """One combination of a sweep. What is not known is None."""

    settings: Mapping[str, KnobValue] = field(hash=False)
    """The knobs that were swept."""
    device: str
    """The kind of device: `cpu`, `gpu`."""
    ratio: float | None
    """Its throughput over that of the baseline on the same device."""
    ratio_ci95: Interval | None
    examples_per_s: float | None
    memory_bytes: float | None
    bottleneck: str | None
    place: str | None
    """Where it was measured last."""
    state: str
    """`measured`, `stopped early`, `time limit`, `refused`, `failed`, `baseline`, or `waiting`."""
    reason: str | None
    """Why it was refused, or failed."""
    data: Mapping[str, Any] = field(repr=False, hash=False)
    """All that the JSON object has of it."""


@dataclass(frozen=True, slots=True, repr=False)
class SweepResult:
    """The result of a sweep. `print` shows the table of the command."""

    scenario: str
    combinations: tuple[CombinationResult, ...]
    """The best first."""
    text: str
    """Which is the best, in words."""
    file: Path | None
    """Where it is kept; `resume` goes on with it."""
    interrupted: str | None
    """Why it ended before all was measured."""
    table: str = field(repr=False)
    """The table that the command prints."""
    data: Mapping[str, Any] = field(repr=False, hash=False)
    """The JSON object that the command prints."""

    def best(self, device: str | None = None) -> CombinationResult:
        """Return the best combination, on a kind of device where there are several.

        Raises:
            TfmonError: nothing was measured there.
        """
        known = [one for one in self.combinations if one.ratio is not None and device in (None, one.device)]
        kinds = sorted({one.device for one in known})
        if not known:
            raise TfmonError("nothing was measured" + (f" on {device}" if device else ""))
        if len(kinds) > 1:
            raise TfmonError("each kind of device has a best one", f"name one: {', '.join(kinds)}")
        return known[0]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that the command prints."""
        return dict(self.data)

    def to_frame(self) -> DataFrame:
        """Return a pandas data frame: a row for each combination, the best first, and a column for each knob.

        Raises:
            TfmonError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise TfmonError("to_frame needs pandas, which is not installed", "pip install pandas") from None
        rows = []
        for one in self.combinations:
            ends = one.ratio_ci95 or (None, None)
            figures = {
                name: value
                for name, value in one.data.items()
                if name not in ("settings", "ratio_ci95", "deaths", "missing", "learns_differently_by", "number")
            }
            rows.append({**one.settings, **figures, "ratio_low": ends[0], "ratio_high": ends[1]})
        return pandas.DataFrame(rows)

    def __repr__(self) -> str:
        return f"<SweepResult {self.scenario}: {self.text.splitlines()[0] if self.text else 'nothing is known'}>"

    def __str__(self) -> str:
        return self.table

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook."""
        return f"<pre>{html.escape(self.table)}</pre>"


def sweep(
    scenario: str | os.PathLike[str] | None = None,
    over: Mapping[str, Sequence[KnobValue] | str] | None = None,
    *,
    on: str | Sequence[str] = "cpu",
    settings: Mapping[str, KnobValue] | None = None,
    until_ci: float | None = None,
    limit_s: float | None = None,
    everything: bool = False,
    slice_s: float | None = None,
    command: Sequence[str] = (),
    in_place: bool = False,
    python: str | os.PathLike[str] | None = None,
    record: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    ray: str | None = None,
    ray_python: str | os.PathLike[str] | None = None,
    ray_cpus: float = 1.0,
    progress: bool | Callable[[str], None] = True,
    wait: bool = True,
) -> SweepResult:
    """Measure all combinations of the values of some knobs, as `tfmon sweep --headless` does.

    Each is raced in turns against the baseline on the same device. No signal handler is set; at an exception, such
    as KeyboardInterrupt, the lanes are ended before it goes on, and what was measured is in the file.

    Args:
        scenario: A name from `tfmon list`, or the file of a scenario; None for a command or with `resume`.
        over: The values of each knob, such as `{"batch_size": [32, 128], "prefetch": ["off", "auto"]}`, or a range
            as the command takes it, `{"batch_size": "16..4096"}`.
        on: Where to measure, such as `"cpu"` or `["gpu:0", "gpu2/gpu"]`.
        settings: Knobs of the baseline.
        until_ci: Measure each until its ratio is known to within ± this share; None for 0.03.
        limit_s: Longest time that one is raced for; None for 60 s.
        everything: Whether those that cannot win any more are measured all the same.
        slice_s: Length of a slice in seconds; None for what is set.
        command: A training script of your own instead of a scenario, as a list of words.
        in_place: Whether all lanes of a `command` write to the working folder itself; by default each has a
            copy-on-write view of it.
        python: The interpreter that trains; None for what is set, or else this one.
        record: The new file to keep it in; None for one among your sweeps.
        resume: The file of a sweep to go on with, or `"last"`, as it began; nothing is measured twice.
        ray: The Ray cluster of places such as `"ray/gpu"`: HOST:PORT of its head; None for RAY_ADDRESS, or
            else the one that runs here.
        ray_python: The Python that has Ray; None for this one.
        ray_cpus: How many CPUs are reserved for each place on Ray.
        progress: Whether to show how it goes in a notebook or on a terminal, or what to call with each line.
        wait: Wait while a race or sweep that Python began is under way; False raises TfmonError.

    Raises:
        TfmonError: what was requested is not possible.
    """
    with named_as_arguments():
        words = arguments.words("command", command, '["python", "train.py"]')
        named = arguments.path("scenario", scenario)
        values = (over, settings, until_ci, limit_s, everything, slice_s, python, record)
        given = [flag for flag, value in zip(AS_BEFORE, values, strict=True) if value]
        check_start(scenario=named is not None, command=bool(words), resume=resume is not None, given=given)
        arguments.yes_or_no(everything=everything, in_place=in_place, wait=wait)
        if over is not None and not isinstance(over, Mapping):
            arguments.refuse("over", over, 'it is a dict of values, such as {"batch_size": [32, 128]}')
        if ray is not None and (not isinstance(ray, str) or not ray):
            arguments.refuse("ray", ray, "it is HOST:PORT of the head of a cluster")
        cluster = ray_cluster(
            ray,
            arguments.path("ray_python", ray_python),
            arguments.number("ray_cpus", ray_cpus, "it is a number of CPUs", 0, MOST_CPUS) or 0.0,
            "ray_python",
        )
        places = (on,) if isinstance(on, str) else arguments.words("on", on, '["cpu", "gpu:0"]')
        options = SweepOptions(
            over=tuple(f"{name}={_values(name, values)}" for name, values in (over or {}).items()),
            places=() if resume is not None and on == "cpu" else places,
            race=RaceOptions(
                settings=arguments.settings("settings", settings),
                slice_s=slice_of(slice_s),
                python=interpreter(arguments.path("python", python) or str(resolve("python").value), words),
                watched=False,
                ray=cluster,
                in_place=in_place,
            ),
            until_ci=arguments.share("until_ci", until_ci, LEAST_CI) or 0.03,
            each_s=arguments.seconds("limit_s", limit_s, 1, LONGEST_S) or 60.0,
            everything=everything,
        )
        file, before = arguments.path("record", record), arguments.path("resume", resume)
        with teller(progress) as tell, alone(wait, tell):
            program = SweepProgram(
                named,
                words,
                options,
                file=None if file is None else Path(file),
                resume=None if before is None else Path(before),
            )
            try:
                follow_sweep(program, pause, tell)
            finally:
                program.close("ended by the program that began it")
    return _result(program.sweep.found, program.file.path if program.file else None)


def _values(name: str, values: object) -> str:
    """Return the values of a knob as the command line takes them."""
    if isinstance(values, str):
        return values
    if isinstance(values, Mapping) or not isinstance(values, Iterable):
        arguments.refuse(f"over[{name!r}]", values, "it is a list of values, or text such as 16..4096")
    return ",".join(exact(arguments.plain(value)) for value in values)


def _result(found: Found, file: Path | None) -> SweepResult:
    data = sweep_to_json(found, str(file or ""))
    same = [one.name for one in fields(CombinationResult) if one.name not in ("ratio_ci95", "data")]
    return SweepResult(
        scenario=data["scenario"],
        combinations=tuple(
            CombinationResult(
                **{name: one[name] for name in same},
                ratio_ci95=tuple(one["ratio_ci95"]) if one["ratio_ci95"] else None,
                data=one,
            )
            for one in data["combinations"]
        ),
        text="\n".join(data["text"]),
        file=file,
        interrupted=data["interrupted"],
        table=to_text(found, str(file or "")),
        data=data,
    )
