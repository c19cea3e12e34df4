"""`tfmon profile`: a profile of one lane, or a comparison of two."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tfmon.api import value_rules
from tfmon.api.options import Purpose, RaceOptions
from tfmon.cli import export, flags
from tfmon.errors import EXIT_INTERRUPTED, UsageError

if TYPE_CHECKING:
    from tfmon.analysis.compare_profiles import ProfiledSide
    from tfmon.api.race_programs import ProfileProgram
    from tfmon.model.profile import Profile


@click.command(cls=flags.TakesCommand)
@click.argument("scenario", required=False)
@click.argument("second", required=False)
@click.option(
    "--steps",
    type=value_rules.whole(1, 1000),
    default=20,
    show_default=True,
    help="Steps to profile.",
)
@click.option(
    "--profiles",
    type=value_rules.whole(1, 20),
    default=3,
    show_default=True,
    help="Profiles of each of two lanes; from two on, every difference has an interval.",
)
@click.option("--chrome", metavar="FILE", help="Write the trace to FILE, for ui.perfetto.dev or chrome://tracing.")
@click.option("--keep", metavar="DIR", help="Keep TensorFlow's own files in DIR, for xprof or TensorBoard.")
@click.option("--html", metavar="FILE", help="Write the comparison of two lanes as one HTML file, too.")
@click.option("--force", is_flag=True, help="Write over a report that is there already.")
@flags.takes(RaceOptions, "profile")
@flags.as_json
def profile(
    chosen: RaceOptions,
    second: str | None,
    chrome: str | None,
    keep: str | None,
    html: str | None,
    force: bool,
    as_json: bool,
    steps: int,
    profiles: int,
) -> None:
    """Profile some training steps of SCENARIO, or of a script, in one lane; or in two, and compare them.

    The lanes train until they are steady. Then TensorFlow's profiler records the steps, and the lane reads the
    trace. Two lanes are profiled in turns, several times, each lane alone. The table says which operations, and
    which waiting, explain that a step of one lane takes longer.

    Two arguments are profiles that were kept: folders with traces, as of --keep, TensorBoard or jax.profiler, or
    recordings of races in which P was pressed; `last:B` is lane B of one. Of one folder the latest trace is shown.

    \b
    For example:
      tfmon profile small-dense
      tfmon profile eager-graph --lane gpu:0 --steps 50 --chrome trace.json
      tfmon profile small-dense --lane cpu --lane cpu,batch_size=256
      tfmon profile --lane cpu --lane gpu:0 -- python train.py
      tfmon profile kept/A
      tfmon profile kept/A kept/B
    """
    lanes, name = chosen.lanes, chosen.scenario if chosen.has("scenario") else ""
    if html and second is None and len(lanes) < 2:
        raise UsageError("--html is for the comparison of two lanes", "name two with --lane")
    _check_writable(chrome)
    with tempfile.TemporaryDirectory(prefix="tfmon-profile-") as temporary:
        folder = _folder_for(keep) if keep else Path(temporary)
        if second is not None:
            if keep or lanes or chosen.settings:
                raise UsageError(
                    "two kept profiles are compared as they are", "leave --keep, --lane and --set out"
                )
            sides = _kept((name, second), folder, chosen.interpreter, merged=bool(chrome))
        elif name and (Path(name).is_dir() or name.endswith(".xplane.pb")):
            from tfmon.api.stored_profiles import kept_side

            if keep or lanes or chosen.settings:
                raise UsageError("a kept profile is read as it is", "leave --keep, --lane and --set out")
            latest = max(map(str, Path(name).glob("**/*.xplane.pb")), default=name)
            _print(kept_side("A", latest, chosen.interpreter, chrome or "").profiles[-1], as_json)
            return
        else:
            run = _profiled(chosen, folder, chrome, local=bool(chrome or keep), steps=steps, profiles=profiles)
            if run.sides is None:
                if run.result is None:
                    sys.exit(EXIT_INTERRUPTED)
                _print(run.result, as_json)
                return
            sides = run.sides
        if chrome:
            from tfmon.api.stored_profiles import merge_traces

            traces = [(f"{side.id} {side.title}", folder / f"{side.id}.json") for side in sides]
            merge_traces(traces, Path(chrome))
    from tfmon.reports.profile_report import describe_diff, diff_to_text

    if html is not None:
        export.write_html(
            lambda: describe_diff(*sides, page=True), Path(html), everything=False, force=force, err=True
        )
    result = describe_diff(*sides).data if as_json else diff_to_text(*sides)
    flags.print_result(result, "")


def _print(profile: Profile, as_json: bool) -> None:
    from tfmon.reports.profile_report import to_json, to_text

    flags.print_result(to_json(profile) if as_json else to_text(profile), "")


def _check_writable(chrome: str | None) -> None:
    if not chrome:
        return
    target = Path(chrome)
    existed = target.exists()
    try:
        target.open("ab").close()
        if not existed:
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
    arguments: Sequence[str], folder: Path, python: Path, *, merged: bool
) -> tuple[ProfiledSide, ProfiledSide]:
    from tfmon.api.stored_profiles import kept_side

    first, second = (
        kept_side(id, argument, python, str(folder / f"{id}.json") if merged else "")
        for id, argument in zip(("A", "B"), arguments, strict=True)
    )
    return first, second


def _profiled(
    chosen: RaceOptions, folder: Path, chrome: str | None, *, local: bool, steps: int, profiles: int
) -> ProfileProgram:
    from tfmon.api.race_programs import ProfileProgram
    from tfmon.api.run_base import run_until_over

    if len(chosen.lanes) > 2:
        raise UsageError(f"two lanes are compared, not {len(chosen.lanes)}", "name one or two with --lane")
    if local and any("/" in lane.partition(",")[0] for lane in chosen.lanes):
        raise UsageError("--chrome and --keep need lanes of this machine: traces stay where they are")
    purpose, trace = Purpose(one_lane=len(chosen.lanes) < 2), str(Path(chrome).absolute()) if chrome else ""
    program = ProfileProgram(replace(chosen, record=False), purpose, folder, steps, trace, profiles)
    run_until_over(program)
    return program
