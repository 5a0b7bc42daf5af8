"""Flags that say how a node is set up, for the commands that need a node's settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from anabranch.broker.settings import Settings, load_settings
from anabranch.broker.settings.model import name_of

_F = TypeVar("_F", bound=Callable[..., Any])


def setting_help(what: str, field: str) -> str:
    """The help of a flag that stands for a setting: with the setting's name and default.

    >>> setting_help("Where the view is kept.", "data_dir")
    'Where the view is kept.  [setting: dataDir; default: data]'
    """
    default = Settings.fields[field].default
    shown = "" if default is None else f"; default: {default}"
    return f"{what}  [setting: {name_of(field)}{shown}]"


FILE: Final = click.Path(dir_okay=False, path_type=Path)
_OPTIONS = (
    click.option("--config", type=FILE, help="TOML file of settings."),
    click.option(
        "--bootstrap-servers",
        metavar="HOST:PORT,...",
        help=setting_help("Kafka to connect to.", "bootstrap_servers"),
    ),
    click.option(
        "--kafka-properties",
        type=click.Path(path_type=Path),
        help=setting_help("A Kafka client's properties.", "kafka_properties_file"),
    ),
    click.option(
        "--data-dir",
        type=click.Path(file_okay=False),
        help=setting_help("Directory of a node's view of the log.", "data_dir"),
    ),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="Any other setting, by its name; may be repeated.",
    ),
)


def setting_flags(command: _F) -> _F:
    """Adds the flags; the command takes them as `**given` and hands that to `settings_of`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def given_settings(settings: Iterable[str]) -> dict[str, object]:
    """Returns the settings that --set gives, by name."""
    found: dict[str, object] = {}
    for setting in settings:
        name, sep, value = setting.partition("=")
        if not sep:
            raise click.BadParameter(
                f"{setting!r} is not of the form NAME=VALUE", param_hint="--set"
            )
        found[name.strip()] = value.strip()
    return found


def settings_of(
    config: Path | None,
    bootstrap_servers: str | None,
    kafka_properties: Path | None,
    data_dir: str | None,
    settings: tuple[str, ...],
    http_port: int | None = None,
    service_port: int | None = None,
) -> Settings:
    """File, environment and flags together; a flag of its own wins over --set.

    Raises SettingsError.
    """
    overrides = given_settings(settings)
    named = {
        "bootstrapServers": bootstrap_servers,
        "kafkaPropertiesFile": kafka_properties,
        "dataDir": data_dir,
        "webServicePort": http_port,
        "brokerServicePort": service_port,
    }
    overrides |= {name: value for name, value in named.items() if value is not None}
    return load_settings(config, os.environ, overrides)


def _can_be_written(_context: click.Context, _param: click.Parameter, value: Any) -> Any:
    """Refuses a file that cannot be made, before the minutes that it takes to have its content."""
    if not value or value == "-":
        return value
    file = Path(value).absolute()
    if not file.parent.is_dir():
        raise click.BadParameter(f"there is no folder {file.parent}: make it, or name another file")
    if file.is_dir():
        raise click.BadParameter(f"{file} is a folder: name a file")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise click.BadParameter(f"{file} cannot be written: name another file")
    return value


def json_flag(command: _F) -> _F:
    """Adds where the result goes as JSON: `json_path` ("-": standard output, "": nowhere)."""
    data = click.option(
        "--json",
        "json_path",
        is_flag=False,
        flag_value="-",
        default="",
        show_default=False,
        metavar="[FILE]",
        callback=_can_be_written,
        help="Print the result as JSON instead of a table, or write it to a file besides.",
    )
    return data(command)


def report_flags(command: _F) -> _F:
    """Adds where a report goes: `json_path`, as `json_flag` does, and `html_path`."""
    page = click.option(
        "--html",
        "html_path",
        type=FILE,
        callback=_can_be_written,
        help="File for the report with plots.",
    )
    return json_flag(page(command))
