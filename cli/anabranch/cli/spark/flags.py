"""Flags that say where Spark runs, and with how much, for the commands that run it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from anabranch.spark_replay.archive.folders import Place
    from anabranch.spark_replay.spark.settings import SparkSettings


DIRECTORY_OR_URL: Final = "DIRECTORY|URL"
_F = TypeVar("_F", bound=Callable[..., Any])

# Read by `broker.settings.environment` as no settings of a node.
_OPTIONS: Final = (
    click.option(
        "--master",
        default="local[*]",
        envvar="ANABRANCH_SPARK_MASTER",
        show_default=True,
        show_envvar=True,
        metavar="URL",
        help="Spark's master: local[CORES], this machine; or spark://HOST:PORT, a standalone "
        "cluster.",
    ),
    click.option(
        "--driver-memory",
        default="",
        envvar="ANABRANCH_SPARK_DRIVER_MEMORY",
        show_envvar=True,
        metavar="SIZE",
        help="Memory of this process's Java, for example 4g.  [default: a third of the "
        "machine's, 1g to 6g]",
    ),
    click.option(
        "--executor-memory",
        default="1g",
        envvar="ANABRANCH_SPARK_EXECUTOR_MEMORY",
        show_default=True,
        show_envvar=True,
        metavar="SIZE",
        help="Memory of the Java of a cluster's executor; its Python workers come on top.",
    ),
    click.option(
        "--cores",
        type=click.IntRange(1),
        envvar="ANABRANCH_SPARK_CORES",
        show_envvar=True,
        help="Most cores of a cluster for this job.  [default: 1 for archive, else all]",
    ),
    click.option(
        "--driver-host",
        default="",
        envvar="ANABRANCH_SPARK_DRIVER_HOST",
        show_envvar=True,
        metavar="HOST",
        help="Address of this process for a cluster's executors.  [default: the one on the way "
        "to the master]",
    ),
    click.option(
        "--spark-conf",
        multiple=True,
        envvar="ANABRANCH_SPARK_CONF",
        show_envvar=True,
        metavar="NAME=VALUE",
        help="Any other setting of Spark or, after spark.hadoop., of Hadoop; may be repeated.",
    ),
)


def spark_flags(command: _F) -> _F:
    """Adds the flags; the command takes them as `**given`, for `spark_settings_of`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def place_of_archive(given: str) -> Place:
    """An archive's directory, or its URL, as it holds wherever a process runs.

    Raises InvalidInputError.
    """
    from anabranch.spark_replay.archive.folders import checked_place

    return checked_place(given)


def spark_settings_of(given: dict[str, Any], cores: int = 0) -> SparkSettings:
    """Takes the flags of Spark out of `given`. `cores`: the default number of a cluster's cores.

    Raises InvalidInputError.
    """
    from anabranch.spark_replay.spark.settings import SparkSettings

    conf: dict[str, str] = {}
    for setting in given.pop("spark_conf"):
        name, sep, value = setting.partition("=")
        if not sep or not name.startswith("spark."):
            raise click.BadParameter(
                f"{setting!r} is not of the form spark.NAME=VALUE", param_hint="--spark-conf"
            )
        conf[name] = value
    return SparkSettings(
        master=given.pop("master"),
        driver_memory=given.pop("driver_memory"),
        executor_memory=given.pop("executor_memory"),
        cores=given.pop("cores") or cores,
        driver_host=given.pop("driver_host"),
        conf=conf,
    )
