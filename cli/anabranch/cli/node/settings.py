"""`anabranch settings`: a node's settings."""

from __future__ import annotations

import click

from anabranch.broker.settings import Settings
from anabranch.broker.settings.page import SettingRow, markdown_table, setting_rows
from anabranch.cli.shared.api import json_option
from anabranch.cli.shared.command import Command
from anabranch.cli.shared.exit_status import ExitStatus
from anabranch.cli.shared.output import table, write_json
from anabranch.proxy.settings import ProxySettings


@click.command(cls=Command)
@click.argument("words", nargs=-1, metavar="[WORD]...")
@click.option("--proxy", "of_proxy", is_flag=True, help="List those of a proxy instead.")
@click.option("--markdown", is_flag=True, help="Print the table of docs/settings.md.")
@json_option
def settings(words: tuple[str, ...], of_proxy: bool, markdown: bool, as_json: bool) -> int:
    """List the settings of a node, or those whose name or meaning has each WORD.

    A setting goes into the file of --config, or the environment under the variable's name, or into
    --set NAME=VALUE. CHANGES says when it takes effect. Every setting does at a node's start. Some
    also change while nodes run: for all nodes (`anabranch config`), or by a policy for a topic or a
    namespace (`anabranch policy`).

    Exit status 1: no setting has all of the WORDs.

    Example: anabranch settings lease
    """
    every = setting_rows(ProxySettings if of_proxy else Settings)
    rows = [row for row in every if all(_has(row, word.lower()) for word in words)]
    if as_json:
        write_json(rows)
    elif markdown:
        click.echo(markdown_table(rows), nl=False)
    elif words:
        return _explain(rows, words)
    else:
        cells = [(row.name, row.default or "-", row.changes, row.meaning) for row in rows]
        table(("NAME", "DEFAULT", "CHANGES", "MEANING"), cells)
    return ExitStatus.DONE


def _has(row: SettingRow, word: str) -> bool:
    return any(word in text.lower() for text in (row.name, row.variable, row.meaning))


def _explain(rows: list[SettingRow], words: tuple[str, ...]) -> int:
    """Prints all that is known of a few; the exit status."""
    if not rows:
        named = " and ".join(map(repr, words))
        click.echo(
            f"anabranch: no setting has {named} in its name or meaning; `anabranch settings` "
            "lists all",
            err=True,
        )
        return ExitStatus.BAD
    for row in rows:
        click.echo(row.name)
        click.echo(f"  {row.meaning}")
        click.echo(f"  default {row.default or '-'}; {row.values}; changes: {row.changes}")
        click.echo(f"  {row.variable}")
    return ExitStatus.DONE
