"""`tfmon list`, `tfmon show` and `tfmon new`: what can be raced, and how to write more of it."""

from __future__ import annotations

import json

import click


@click.command()
@click.argument("name")
def new(name: str) -> None:
    """Write a commented scenario file NAME.py that races at once."""
    from tfmon.starter import write

    path = write(name)
    click.echo(f"wrote {path}; tfmon race ./{path} races it")


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def list_scenarios(as_json: bool) -> None:
    """List the scenarios that can be raced."""
    from tfmon.catalog import list_cards

    cards = list_cards()
    if as_json:
        rows = [
            {"name": card.name, "title": card.title, "origin": card.origin, "path": str(card.path)}
            for card in cards
        ]
        click.echo(json.dumps(rows, indent=2))
        return
    width = max(len(card.name) for card in cards)
    for origin in dict.fromkeys(card.origin for card in cards):
        click.echo(f"{origin}:")
        for card in cards:
            if card.origin == origin:
                click.echo(f"  {card.name:{width}}  {card.title}")
    click.echo("\ntfmon show NAME says more; tfmon race NAME races it, also with a file of your own: ./mine.py")


@click.command()
@click.argument("scenario")
def show(scenario: str) -> None:
    """Show what SCENARIO trains, and its knobs."""
    from tfmon.catalog import find_card
    from tfmon.model.knobs import show as written

    card = find_card(scenario)
    click.echo(f"{card.name}: {card.title}\n\n{card.doc}\n")
    click.echo(f"file      {card.path}")
    click.echo(f"contrast  {' | '.join(card.contrast)}  (raced where there is no GPU)\n")
    click.echo("knobs")
    for knob in card.knobs:
        click.echo(f"  {knob.name}={written(knob.default)}  ({knob.kind}; {knob.allowed()})\n      {knob.help}")
