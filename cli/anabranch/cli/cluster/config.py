"""`anabranch config`: settings that the whole cluster overrides while its nodes run."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from anabranch.cli.shared.api import connect, json_option, url_option
from anabranch.cli.shared.output import table, write_json
from anabranch.cli.shared.watching import watchable


@click.group(epilog="Example: anabranch config set loadBalancerSheddingEnabled false")
def config() -> None:
    """Settings of all nodes at once, while they run.

    An override goes before each node's file, environment and flags, from its record's place in the
    log on, and stays until it is unset. `anabranch settings` says which settings may change so.
    """


@config.command("list", epilog="Example: anabranch config list --json")
@url_option
@json_option
@watchable
def list_(url: str, as_json: bool) -> None:
    """List the overrides, their former values, times and brokers.

    The log has every change (`anabranch log tail`).
    """
    found = connect(url).brokers.get_setting_overrides()
    if as_json:
        write_json(found)
        return
    rows = [
        (
            name,
            each.value or "-",
            each.before or "-",
            datetime.fromtimestamp(each.since_ms / 1000, UTC).isoformat(timespec="seconds"),
            each.broker,
        )
        for name, each in sorted(found.items())
    ]
    table(("SETTING", "VALUE", "BEFORE", "SINCE", "BY"), rows)
    for name, each in sorted(found.items()):
        if each.ignored:
            click.echo(f"{name} does not count on the node that was asked: {each.ignored}")


@config.command(
    "set",
    context_settings={"ignore_unknown_options": True},  # -1 is a value, which the node judges
    epilog="Example: anabranch config set lookupTimeoutMillis 5s",
)
@click.argument("name")
@click.argument("value")
@url_option
def set_(name: str, value: str, url: str) -> None:
    """Override setting NAME by VALUE on all nodes, at once.

    VALUE is written as in a file of settings. If NAME says a unit, VALUE may have another one: 5s,
    64MB, 25%. A value that contradicts other settings is refused.
    """
    connect(url).brokers.update_dynamic_configuration(name, value)
    click.echo(f"{name} is set")


@config.command(epilog="Example: anabranch config unset lookupTimeoutMillis")
@click.argument("name")
@url_option
def unset(name: str, url: str) -> None:
    """Let every node go by its own setting NAME again."""
    connect(url).brokers.delete_dynamic_configuration(name)
    click.echo(f"{name} is not overridden")
