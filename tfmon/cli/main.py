"""The command line: errors, exit codes, and loading of commands."""

from __future__ import annotations

import difflib
import os
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem, get_completion_class

from tfmon.errors import EXIT_INTERRUPTED, TfmonError, UsageError
from tfmon.version import __version__

COMMANDS = {
    "attach": ("attach", "Show a run that is under way."),
    "completion": ("main", "Print what completes tfmon in your shell."),
    "config": ("machines", "Show the settings in effect."),
    "crossover": ("series_commands", "Find where one lane overtakes the other."),
    "diff": ("recordings", "Compare two recorded races."),
    "doctor": ("machines", "Say why TensorFlow uses no GPU here."),
    "export": ("export", "Write a report of a recorded race, or its numbers."),
    "hosts": ("machines", "Say what other machines have, and whether they answer."),
    "list": ("scenarios", "List the scenarios: those that come with tfmon, and your own."),
    "mcp": ("agents", "Serve tfmon to agents (Model Context Protocol)."),
    "new": ("scenarios", "Write a scenario file to start from."),
    "profile": ("profile_command", "Profile some steps of one lane, or compare the profiles of two."),
    "race": ("race_commands", "Race a scenario, or your own script."),
    "replay": ("recordings", "Show a recorded race."),
    "runs": ("recordings", "List the recorded races, and the latest sweeps."),
    "show": ("scenarios", "Show what a scenario trains, and its knobs."),
    "sweep": ("series_commands", "Measure many combinations of settings."),
    "try": ("trial_command", "Race a change to your script against it: keep it, or not?"),
    "tune": ("series_commands", "Find settings that train faster."),
    "verify": ("race_commands", "Measure what is claimed about scenarios."),
    "watch": ("race_commands", "Watch your own script in one lane."),
}


class Commands(click.Group):
    """The commands of tfmon, with hints for unknown commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command."""
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            module, short_help = COMMANDS[cmd_name]
            members = vars(import_module(f"tfmon.cli.{module}")).values()
            command = next(item for item in members if isinstance(item, click.Command) and item.name == cmd_name)
            command.short_help = short_help
            for parameter in command.params:
                if complete := _BY_NAME.get(parameter.name or ""):
                    vars(parameter)["shell_complete"] = complete
            self.add_command(command)
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list without loading commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, short_help) for name, (_, short_help) in COMMANDS.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:  # noqa: ANN401 - click's own type
        """Return the command of the first argument."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
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
    4 worse and 5 cannot tell (gates of tfmon diff), 6 no GPU became free (--wait-idle), 7 a lane has what
    --fail-on names, 130 interrupted.
    """
    if ctx.invoked_subcommand is None:
        from tfmon.cli.race_commands import race

        with race.make_context("race", [], parent=ctx) as race_context:
            race.invoke(race_context)


SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_TFMON_COMPLETE"
Complete = Callable[[click.Context, str], list[CompletionItem]]


@click.command
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
    infos = (info for info in list_scenarios() if info.name.startswith(incomplete))
    return [CompletionItem(info.name, help=info.title) for info in infos]


def _runs(_ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    from tfmon.recordings import library

    result = [CompletionItem("last", help="the last race that is over")]
    for info in reversed(library.runs()):
        result.append(CompletionItem(info.id, help=info.outcome))
    matching = [item for item in result if str(item.value).startswith(incomplete)]
    return matching or [CompletionItem(incomplete, type="file")]


def _hosts(_ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    from tfmon.api.settings import config_path, read_file

    return [CompletionItem(host) for host in read_file(config_path()).hosts if host.startswith(incomplete)]


def _files(_ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


_BY_NAME: dict[str, Complete] = {
    **dict.fromkeys(("scenario", "scenarios"), _scenarios),
    **dict.fromkeys(("recording", "run", "first", "second"), _runs),
    **dict.fromkeys(("names", "host"), _hosts),
    **dict.fromkeys(("html", "output", "chrome"), _files),
}


def main() -> NoReturn:
    """Run the command line and exit."""
    stdout = sys.stdout
    if stdout is None:
        sys.exit("tfmon: standard output is closed; to print nothing, send it to /dev/null")
    try:
        try:
            code = cli.main(prog_name="tfmon", standalone_mode=False)
        except OSError as error:
            *_, (frame, _) = traceback.walk_tb(error.__traceback__)
            if frame.f_globals.get("__name__") != "click.utils":  # not an error of printing
                raise
            from tfmon.cli import flags

            raise flags.unwritable(error) from None
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
        # Click replaces stdout and exits with 1 after a broken pipe. Here 1 means that a lane failed.
        code = leaving.code if sys.stdout is stdout else 0
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
