"""`tfmon list`, `show` and `new`. It loads little, to be fast."""

from __future__ import annotations

import json
import keyword
from pathlib import Path

import click

from tfmon.errors import UsageError


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def list_scenarios(as_json: bool) -> None:
    """List the scenarios: those that come with tfmon, and your own.

    \b
    For example:
      tfmon list
      tfmon list --json
    """
    from tfmon.catalog import list_scenarios

    infos = list_scenarios()
    if as_json:
        rows = [
            {"name": info.name, "title": info.title, "origin": info.origin, "path": str(info.path)}
            for info in infos
        ]
        click.echo(json.dumps(rows, indent=2))
        return
    width = max(len(info.name) for info in infos)
    for origin in dict.fromkeys(info.origin for info in infos):
        click.echo(f"{origin}:")
        for info in infos:
            if info.origin == origin:
                click.echo(f"  {info.name:{width}}  {info.title}")
    click.echo("\ntfmon show NAME says more; tfmon race NAME races it, also with a file of your own: ./mine.py")


@click.command
@click.argument("scenario")
def show(scenario: str) -> None:
    """Show what SCENARIO trains, and the knobs it has.

    \b
    For example:
      tfmon show small-dense
      tfmon show ./mine.py
    """
    from tfmon.catalog import find_scenario
    from tfmon.model import knobs

    info = find_scenario(scenario)
    click.echo(f"{info.name}: {info.title}\n\n{info.doc}\n")
    click.echo(f"file      {info.path}")
    click.echo(f"contrast  {' | '.join(info.contrast)}  (raced where there is no GPU)\n")
    click.echo("knobs")
    for knob in info.knobs:
        click.echo(f"  {knob.name}={knobs.show(knob.default)}  ({knob.kind}; {knob.allowed()})\n      {knob.help}")


@click.command
@click.argument("name")
def new(name: str) -> None:
    """Write a commented scenario file NAME.py that races at once.

    \b
    For example:
      tfmon new mine
    """
    path = write(name)
    click.echo(f"wrote {path}; tfmon race ./{path} races it")


def write(name: str) -> Path:
    """Write a scenario template, and return the path; raises UsageError."""
    stem = name.removesuffix(".py").replace("-", "_")
    if not stem.isidentifier() or keyword.iskeyword(stem) or not stem.isascii():
        raise UsageError(f"{name!r} cannot be a scenario's name", "letters, digits and dashes will do: my-net")
    path = Path(f"{stem}.py")
    parts = [word for word in stem.split("_") if word]
    text = _TEMPLATE.format(title=" ".join(parts).capitalize(), name="".join(word.capitalize() for word in parts))
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError(f"{path} is there already", "choose another name, or remove it") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    return path


_TEMPLATE = '''"""{title}: say in one line what it shows.

Say here what trains, what to expect, and which keys to press.
"""

import numpy as np
import tensorflow as tf

from tfmon.trainer import Scenario


class {name}(Scenario):
    """tfmon reads these attributes without running the file, so write them out."""

    batch_size = 32
    prefetch = "auto"  # "off", "auto" or a number of batches
    examples = 10_000
    # Raced against each other on a machine without a GPU; elsewhere it is the CPU against the GPU.
    contrast = ("batch_size=32", "batch_size=512")

    def data(self):
        """Give the examples: a pair of arrays, or a tf.data.Dataset of single examples."""
        random = np.random.default_rng(0)
        x = random.random((self.examples, 64), dtype=np.float32)
        return x, (x.sum(axis=1) > 32).astype("int64")

    # Work on each example in the input pipeline; gives the knobs parallel_calls and cache.
    # def prepare(self, x, y):
    #     return tf.math.log1p(x), y

    def model(self):
        """Give any compiled Keras model: its loss and its optimizer are what is trained with."""
        model = tf.keras.Sequential(
            [
                tf.keras.Input((64,)),
                tf.keras.layers.Dense(128, activation="relu"),
                tf.keras.layers.Dense(2, activation="softmax"),
            ]
        )
        model.compile("adam", "sparse_categorical_crossentropy")
        return model
'''
