"""`tfmon completion`: what a shell needs to complete commands, options and their values."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from tfmon.errors import TfmonError, UsageError

if TYPE_CHECKING:
    from tfmon.catalog import ScenarioInfo
    from tfmon.model.knobs import Knob

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_TFMON_COMPLETE"
Complete = Callable[[click.Context, str], list[CompletionItem]]


@click.command(short_help="Print what completes tfmon in your shell.")
@click.argument("shell", required=False, type=click.Choice(SHELLS))
def completion(shell: str | None) -> None:
    """Print what completes commands, options, scenarios, knobs, runs and hosts in SHELL, by default your own.

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
    """Have the parameters of a command complete what only this machine knows: scenarios, knobs, runs, hosts."""
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
        found += [CompletionItem(name, help=info.outcome) for name in (info.id, info.name) if name]
    matching = [item for item in found if str(item.value).startswith(incomplete)]
    return matching or [CompletionItem(incomplete, type="file")]


def _settings(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word, help=said) for word, said in _setting(ctx, incomplete)]


def _lanes(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    before, comma, rest = incomplete.rpartition(",")
    if not comma:
        return [CompletionItem(word, help=said) for word, said in _places(rest)]
    return [CompletionItem(f"{before},{word}", help=said) for word, said in _setting(ctx, rest)]


def _several_places(_ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    before, comma, rest = incomplete.rpartition(",")
    return [CompletionItem(f"{before}{comma}{word}", help=said) for word, said in _places(rest)]


def _places(incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield the devices of this machine, and those that hosts may have."""
    remote = ((f"{host}/{device}", "") for host in _host_names() for device in ("cpu", "gpu", "gpu:0"))
    here = _devices() if "/" not in incomplete else ()
    yield from ((place, said) for place, said in (*here, *remote) if place.startswith(incomplete))


def _hosts(_ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(host) for host in _host_names() if host.startswith(incomplete)]


def _host_names() -> list[str]:
    """Return the hosts of the settings file, and those that ssh's own has by name."""
    from tfmon.runner.settings import config_path, read_file

    names = list(read_file(config_path()).hosts)
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for line in (Path.home() / ".ssh" / "config").read_text("utf-8").splitlines():
            word, *hosts = line.replace("=", " ", 1).split() or [""]
            names += [host for host in hosts if word.lower() == "host" and not set(host) & set("*?!")]
    return list(dict.fromkeys(names))


def _files(_ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


def _devices() -> Iterator[tuple[str, str]]:
    """Yield the devices of this machine with their names; the first GPU also where none is found in a second."""
    from tfmon.probes.gpus import conclude, read_visibility
    from tfmon.runner.devices import short_name

    yield "cpu", ""
    found = conclude(read_visibility(timeout_s=1.0), lambda: None)
    whole = found.whole
    yield from ((f"gpu:{gpu.index}", gpu.name) for gpu in whole)
    if len(whole) > 1:
        yield f"gpu:{whole[0].index}+{whole[1].index}", "two GPUs train together"
        yield "gpu:all", f"all {len(whole)} GPUs"
        yield "2xgpu", "the two idlest GPUs"
    for one in found.instances:
        yield short_name(one, found), one.name
    if not found.usable:
        yield "gpu:0", ""
    yield "2xcpu", "two logical devices of the CPU"


def _setting(ctx: click.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield the settings that a word may become: each knob with each of its values."""
    info = _scenario(ctx)
    for knob in info.knobs if info is not None else ():
        for value in _values(knob):
            if f"{knob.name}={value}".startswith(incomplete):
                yield f"{knob.name}={value}", knob.help


def _values(knob: Knob) -> list[str]:
    from tfmon.model.knobs import show

    if isinstance(knob.default, bool):
        return ["on", "off"]
    return [*dict.fromkeys(show(value) for value in (*knob.words, *(knob.choices or (knob.default,))))]


def _scenario(ctx: click.Context) -> ScenarioInfo | None:
    """Return the scenario that the line names, or else the one that is raced without a name."""
    from tfmon.catalog import find_scenario
    from tfmon.runner.settings import resolve

    try:
        return find_scenario(str(ctx.params.get("scenario") or resolve("scenario").value))
    except TfmonError:
        return None


_BY_NAME: dict[str, Complete] = {
    "scenario": _scenarios,
    "scenarios": _scenarios,
    "recording": _runs,
    "first": _runs,
    "second": _runs,
    "naming": _runs,
    "settings": _settings,
    "over": _settings,
    "lanes": _lanes,
    "lane": _lanes,
    "places": _several_places,
    "names": _hosts,
    "host": _hosts,
    **dict.fromkeys(("html", "output", "record", "resume", "chrome", "python", "ray_python"), _files),
}
"""What completes a parameter, by its name."""
