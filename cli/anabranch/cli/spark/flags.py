"""Flags that say where Spark runs, and with how much, for the commands that run it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from anabranch.spark_replay.spark.settings import SparkSettings

DIRECTORY_OR_URL: Final = "DIRECTORY|URL"
_F = TypeVar("_F", bound=Callable[..., Any])


def spark_flags(command: _F) -> _F:
    """Adds the flags; the command takes them as `**given`, for `spark_settings_of`."""
    # `broker.settings.environment` reads the variables as no settings of a node.
    master = click.option(
        "--master",
        default="local[*]",
        envvar="ANABRANCH_SPARK_MASTER",
        show_default=True,
        show_envvar=True,
        metavar="URL",
        help="Spark's master: local[CORES], this machine; or spark://HOST:PORT, a standalone "
        "cluster.",
    )
    conf = click.option(
        "--spark-conf",
        multiple=True,
        envvar="ANABRANCH_SPARK_CONF",
        show_envvar=True,
        metavar="NAME=VALUE",
        help="A setting of Spark, as spark.driver.memory=4g, or of Hadoop after spark.hadoop.; "
        "may be repeated.",
    )
    return master(conf(command))


def spark_settings_of(given: dict[str, Any], **defaults: str) -> SparkSettings:
    """Takes the flags of Spark out of `given`. `defaults`: settings that they may replace.

    Raises InvalidInputError.
    """
    from anabranch.spark_replay.spark.settings import SparkSettings

    conf = dict(defaults)
    for setting in given.pop("spark_conf"):
        name, sep, value = setting.partition("=")
        if not sep or not name.startswith("spark."):
            raise click.BadParameter(
                f"{setting!r} is not of the form spark.NAME=VALUE", param_hint="--spark-conf"
            )
        conf[name] = value
    return SparkSettings(given.pop("master"), conf)
