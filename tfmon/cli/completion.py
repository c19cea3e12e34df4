"""`tfmon completion`: what a shell needs to complete commands, options, scenarios, runs and hosts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

from tfmon.errors import UsageError

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


def complete_values(command: click.Command) -> None:
    """Have the parameters of a command complete what only this machine knows: scenarios, runs, hosts."""
    for parameter in command.params:
        complete = _BY_NAME.get(parameter.name or "")
        if complete is not None:
            vars(parameter)["shell_complete"] = complete


def _scenarios(_ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    from tfmon.catalog import list_scenarios

    if incomplete.startswith((".", "/", "~")):
        return [CompletionItem(incomplete, type="file")]
    return [
        CompletionItem(one.name, help=one.title) for one in list_scenarios() if one.name.startswith(incomplete)
    ]


def _runs(_ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    from tfmon.recordings import library

    found = [CompletionItem("last", help="the race that ended last")]
    for run in reversed(library.runs()):
        info = run.info()
        found.append(CompletionItem(info.id, help=info.outcome))
    matching = [item for item in found if str(item.value).startswith(incomplete)]
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
