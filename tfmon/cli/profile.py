"""`tfmon profile`: a profile of one lane, or those of two compared, which train now or were kept."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfmon.api.rules import number
from tfmon.cli import export, options
from tfmon.errors import EXIT_INTERRUPTED, UsageError

if TYPE_CHECKING:
    from tfmon.analysis.profile_diff import ProfiledSide
    from tfmon.api.runs import ProfileRun
    from tfmon.model.profile import Profile


@click.command(cls=options.TakesCommand)
@click.argument("scenario", required=False)
@click.argument("second", required=False)
@click.option(
    "--steps",
    type=number("number", "a whole number", 1, 1000),
    default=20,
    show_default=True,
    help="Steps to profile.",
)
@click.option(
    "--profiles",
    type=number("number", "a whole number", 1, 20),
    default=3,
    show_default=True,
    help="Profiles of each of two lanes; from two on, every difference has an interval.",
)
@click.option("--chrome", metavar="FILE", help="Write the trace to FILE, for ui.perfetto.dev or chrome://tracing.")
@click.option("--keep", metavar="DIR", help="Keep TensorFlow's own files in DIR, for xprof or TensorBoard.")
@click.option("--html", metavar="FILE", help="Write the comparison of two lanes as one HTML file, too.")
@click.option("--force", is_flag=True, help="Write over a report that is there already.")
@options.lanes
@options.settings
@options.as_json
@options.python
def profile(
    scenario: str | None,
    second: str | None,
    chrome: str | None,
    keep: str | None,
    html: str | None,
    force: bool,
    as_json: bool,
    **given: Any,  # noqa: ANN401
) -> None:
    """Profile some training steps of SCENARIO, or of a script, in one lane; or in two, and compare them.

    The lanes train until they are steady. Then TensorFlow's profiler records the steps, and the lane reads the
    trace. Two lanes are profiled in turns, several times, each lane alone. The table says which operations, and
    which waiting, explain that a step of one lane takes longer.

    Two arguments are profiles that were kept: folders with traces, as of --keep, TensorBoard or jax.profiler, or
    recordings of races in which P was pressed; `last:B` is lane B of one. Of one folder the latest trace is
    shown.

    \b
    For example:
      tfmon profile small-dense
      tfmon profile eager-graph --lane gpu:0 --steps 50 --chrome trace.json
      tfmon profile small-dense --lane cpu --lane cpu,batch_size=256
      tfmon profile --lane cpu --lane gpu:0 -- python train.py
      tfmon profile kept/A
      tfmon profile kept/A kept/B
    """
    lanes = given["lanes"]
    if html and second is None and len(lanes) < 2:
        raise UsageError("--html is for the comparison of two lanes", "name two with --lane")
    _check_writable(chrome)
    with tempfile.TemporaryDirectory(prefix="tfmon-profile-") as temporary:
        folder = _folder_for(keep) if keep else Path(temporary)
        if second is not None:
            if keep or lanes or given["settings"]:
                raise UsageError(
                    "two kept profiles are compared as they are", "leave --keep, --lane and --set out"
                )
            sides = _kept((scenario or "", second), folder, given["python"], merged=bool(chrome))
        elif scenario is not None and (Path(scenario).is_dir() or scenario.endswith(".xplane.pb")):
            from tfmon.api.options import interpreter
            from tfmon.api.profiles import kept_side

            if keep or lanes or given["settings"]:
                raise UsageError("a kept profile is read as it is", "leave --keep, --lane and --set out")
            latest = max(map(str, Path(scenario).glob("**/*.xplane.pb")), default=scenario)
            _print(kept_side("A", latest, interpreter(given["python"]), chrome or "").profiles[-1], as_json)
            return
        else:
            run = _profiled(scenario, folder, chrome, local=bool(chrome or keep), **given)
            if run.sides is None:
                if run.result is None:
                    sys.exit(EXIT_INTERRUPTED)
                _print(run.result, as_json)
                return
            sides = run.sides
        if chrome:
            from tfmon.api.profiles import merge_traces

            traces = [(f"{side.id} {side.title}", folder / f"{side.id}.json") for side in sides]
            merge_traces(traces, Path(chrome))
    from tfmon.reports import head, profile_diff

    if html is not None:
        export.write_html(
            lambda: profile_diff.describe(*sides, page=True), Path(html), everything=False, force=force, err=True
        )
    result = {**head(), **profile_diff.to_json(*sides)} if as_json else profile_diff.to_text(*sides)
    options.print_result(result, "")


def _print(profile: Profile, as_json: bool) -> None:
    from tfmon.reports.profile import to_json, to_text

    options.print_result(to_json(profile) if as_json else to_text(profile), "")


def _check_writable(chrome: str | None) -> None:
    """Raise UsageError before a profile is taken if the trace cannot be written."""
    if not chrome:
        return
    target = Path(chrome)
    there = target.exists()
    try:
        target.open("ab").close()
        if not there:
            target.unlink()
    except OSError as error:
        raise UsageError(f"--chrome {chrome} cannot be written: {error.strerror}", "name another") from None


def _folder_for(keep: str) -> Path:
    folder = Path(keep).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--keep {keep} is not a folder that can be made: {error.strerror or error}") from error
    return folder


def _kept(
    words: Sequence[str], folder: Path, python: str | None, *, merged: bool
) -> tuple[ProfiledSide, ProfiledSide]:
    from tfmon.api.options import interpreter
    from tfmon.api.profiles import kept_side

    first, second = (
        kept_side(id, word, interpreter(python), str(folder / f"{id}.json") if merged else "")
        for id, word in zip(("A", "B"), words, strict=True)
    )
    return first, second


def _profiled(
    scenario: str | None,
    folder: Path,
    chrome: str | None,
    *,
    local: bool,
    steps: int,
    profiles: int,
    **given: Any,  # noqa: ANN401
) -> ProfileRun:
    from tfmon.api.options import race_options, raced
    from tfmon.api.program import Program
    from tfmon.api.run import run_until_over
    from tfmon.api.runs import ProfileRun, plan_race

    info = raced(scenario, options.own_command(), "profile")
    if len(given["lanes"]) > 2:
        raise UsageError(f"two lanes are compared, not {len(given['lanes'])}", "name one or two with --lane")
    chosen = race_options(given, info, one_lane=len(given["lanes"]) < 2, record=False)
    program = Program(chosen)
    plan = plan_race(program, info, chosen.lanes)
    if local and any(lane.spec.host for lane in plan.lanes):
        program.close()
        raise UsageError("--chrome and --keep need lanes of this machine: traces stay where they are")
    run = ProfileRun(program, plan, folder, steps, str(Path(chrome).absolute()) if chrome else "", profiles)
    run_until_over(run)
    return run
