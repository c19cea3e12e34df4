"""The command line: finds the command, prints errors, returns exit codes. The other modules hold the commands."""

from __future__ import annotations

import difflib
import sys
import traceback
from typing import Any, NoReturn

import click

import tfmon
from tfmon.cli import completion, export, machines, options, race, recordings, scenarios, series
from tfmon.errors import EXIT_INTERRUPTED, TfmonError


class Commands(click.Group):
    """The commands of tfmon. An unknown one is answered with the nearest, or with how to race a scenario."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:  # noqa: ANN401 - click's own type
        """Return the command that the first word names."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            near = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            hint = f"did you mean `tfmon {near[0]}`?" if near else f"to race a scenario: tfmon race {name}"
            raise click.UsageError(f"there is no command {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tfmon.__version__, prog_name="tfmon")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Race TensorFlow training on the CPU and the GPU, live, and see which is faster and why.

    Without a command, tfmon races the scenario small-dense. Press ? on the screen for the keys.

    \b
    For example:
      tfmon                                      watch the CPU race the GPU
      tfmon race small-dense --lane cpu --lane gpu:0,batch_size=256
      tfmon race -- python train.py              your own script, as it is
      tfmon doctor                               why is my GPU not used?

    Exit codes: 0 fine, 1 a lane failed, 2 wrong usage, 3 a device that a lane names is not there,
    4 slower and 5 cannot tell (tfmon diff --slower-than), 6 no GPU became free (--wait-idle), 130 interrupted.
    """
    if ctx.invoked_subcommand is None:
        with race.race.make_context("race", [], parent=ctx) as race_context:
            race.race.invoke(race_context)


for command in (
    race.race,
    race.watch,
    series.crossover,
    series.tune,
    series.sweep,
    race.profile,
    recordings.replay,
    recordings.runs,
    recordings.diff,
    export.export,
    machines.doctor,
    machines.hosts,
    machines.config,
    completion.completion,
    scenarios.verify,
    scenarios.list_scenarios,
    scenarios.show,
    scenarios.new,
):
    completion.complete_values(command)
    cli.add_command(command)


def main() -> NoReturn:
    """Run the command line and leave with its exit code."""
    stdout = sys.stdout
    if stdout is None:
        sys.exit("tfmon: standard output is closed; to print nothing, send it to /dev/null")
    try:
        try:
            code = cli.main(prog_name="tfmon", standalone_mode=False)
        except OSError as error:
            *_, (frame, _) = traceback.walk_tb(error.__traceback__)
            if frame.f_globals.get("__name__") != "click.utils":  # it did not fail to print
                raise
            raise options.unwritable(error) from None
    except TfmonError as error:
        click.echo(f"tfmon: {error.message}", err=True)
        if error.hint:
            click.echo(f"  {error.hint}", err=True)
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = EXIT_INTERRUPTED
    except SystemExit as leaving:
        # Click replaces stdout and leaves with 1 when the reader of the output is gone, as `head` is. Here 1 means
        # that a lane failed.
        code = leaving.code if sys.stdout is stdout else 0
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
