"""The command line: finds the command, prints errors, returns exit codes. The other modules hold the commands."""

from __future__ import annotations

import difflib
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem, get_completion_class

from tfmon.cli import export, machines, options, race, recordings, scenarios, series
from tfmon.errors import EXIT_INTERRUPTED, TfmonError, UsageError
from tfmon.version import __version__


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
@click.version_option(__version__, prog_name="tfmon")
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
    4 slower and 5 cannot tell (tfmon diff --slower-than), 6 no GPU became free (--wait-idle), 7 a lane has what
    --fail-on names, 130 interrupted.
    """
    if ctx.invoked_subcommand is None:
        with race.race.make_context("race", [], parent=ctx) as race_context:
            race.race.invoke(race_context)


# ---------------------------------------------------------------- what a shell completes


SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_TFMON_COMPLETE"
Complete = Callable[[click.Context, str], list[CompletionItem]]


@click.command(short_help="Print what completes tfmon in your shell.")
@click.argument("shell", required=False, type=click.Choice(SHELLS))
def completion(shell: str | None) -> None:
    """Print what completes commands, options, scenarios, runs and hosts in SHELL, by default your own.

    \b
    For example, in the file that your shell reads at its start:
      eval "$(tfmon completion bash)"           ~/.bashrc
      eval "$(tfmon completion zsh)"            ~/.zshrc, below compinit
      tfmon completion fish | source            ~/.config/fish/config.fish
    """
    name = shell or Path(os.environ.get("SHELL", "")).name
    kind = get_completion_class(name) if name in SHELLS else None
    if kind is None:
        raise UsageError(f"there is no completion for {name or 'this shell'}", f"name one: {', '.join(SHELLS)}")
    root = click.get_current_context().find_root().command
    click.echo(kind(root, {}, "tfmon", VARIABLE).source())


def _scenarios(_ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    from tfmon.catalog import list_scenarios

    if incomplete.startswith((".", "/", "~")):
        return [CompletionItem(incomplete, type="file")]
    return [
        CompletionItem(one.name, help=one.title) for one in list_scenarios() if one.name.startswith(incomplete)
    ]


def _runs(_ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    from tfmon.recordings import library

    result = [CompletionItem("last", help="the last race that is over")]
    for run in reversed(library.runs()):
        info = run.info()
        result.append(CompletionItem(info.id, help=info.outcome))
    matching = [item for item in result if str(item.value).startswith(incomplete)]
    return matching or [CompletionItem(incomplete, type="file")]


def _hosts(_ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    from tfmon.api.settings import config_path, read_file

    return [CompletionItem(host) for host in read_file(config_path()).hosts if host.startswith(incomplete)]


def _files(_ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


_BY_NAME: dict[str, Complete] = {
    "scenario": _scenarios,
    "scenarios": _scenarios,
    "recording": _runs,
    "first": _runs,
    "second": _runs,
    "names": _hosts,
    "host": _hosts,
    **dict.fromkeys(("html", "output", "record", "resume", "chrome", "python", "ray_python"), _files),
}


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
    completion,
    scenarios.verify,
    scenarios.list_scenarios,
    scenarios.show,
    scenarios.new,
):
    for parameter in command.params:
        if complete := _BY_NAME.get(parameter.name or ""):
            vars(parameter)["shell_complete"] = complete
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
