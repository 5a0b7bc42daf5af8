"""A session on a standalone Spark: its needs beyond those of a local one, and a test of them.

Spark waits without an end for executors that never come, and tells nothing useful of a master that
does not answer. It tries a task four times if Python does not fit. So this module asks for all that
beforehand.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from anabranch.core.errors import AnabranchError
from anabranch.spark_replay.spark.failures import SPARK_ERRORS, cause
from anabranch.spark_replay.spark.settings import SparkSettings
from anabranch.spark_replay.spark.shipping import pack_modules, pack_packages

PYTHON_SETTING: Final = "spark.pyspark.python"
_MASTER_S_MAX: Final = 10.0
_EXECUTORS_S_MAX: Final = 60.0
_LOOK_EVERY_S: Final = 0.1
# Folders of an executor: our modules, and the packages that they import.
_MODULES: Final = "anabranch-modules"
_PACKAGES: Final = "anabranch-packages"
_ALL_INTERFACES: Final = "0.0.0.0"  # noqa: S104 - where the address that others use is not ours
_PYTHON_DIFFERS: Final = "PYTHON_VERSION_MISMATCH"


class SparkUnavailableError(AnabranchError):
    """The master, its workers or their Python cannot be used. The message has the remedy."""


def reach_master(settings: SparkSettings) -> str:
    """Returns this machine's address on the way to a master that answers.

    Raises SparkUnavailableError if none does in time.
    """
    why: list[str] = []
    for address in settings.masters:
        try:
            with socket.create_connection(address, _MASTER_S_MAX) as connection:
                return str(connection.getsockname()[0])
        except OSError as error:
            why.append(f"{address[0]}:{address[1]}: {error.strerror or error}")
    raise SparkUnavailableError(
        f"no master of Spark answers at {settings.master} ({'; '.join(why)}): check --master, and "
        "that the master runs and can be reached from here"
    )


def cluster_conf(
    settings: SparkSettings, address: str, connectors: Sequence[Path], home: Path, *, tasks: bool
) -> dict[str, str]:
    """Returns Spark's configuration of the executors.
    `tasks` is True if some of them run Python.
    """
    conf = {
        "spark.driver.host": settings.driver_host or address,
        "spark.driver.bindAddress": _ALL_INTERFACES if settings.driver_host else address,
        "spark.executor.memory": settings.executor_memory,
        "spark.jars": _joined(settings, "spark.jars", [jar.as_uri() for jar in connectors], ","),
    }
    if settings.cores:
        conf["spark.cores.max"] = str(settings.cores)
    if tasks:
        path = "spark.executorEnv.PYTHONPATH"
        shipped = [
            f"{pack_modules(home).as_uri()}#{_MODULES}",
            f"{pack_packages().as_uri()}#{_PACKAGES}",
        ]
        conf["spark.archives"] = _joined(settings, "spark.archives", shipped, ",")
        conf[path] = _joined(settings, path, [_MODULES, _PACKAGES], ":")
    return conf


def _joined(settings: SparkSettings, name: str, ours: Sequence[str], by: str) -> str:
    """Returns our list with the user's."""
    given = settings.conf.get(name, "")
    return by.join([*ours, *([given] if given else [])])


def merged(settings: SparkSettings, conf: dict[str, str]) -> dict[str, str]:
    """Returns our configuration with the user's over it, except for lists that hold both."""
    return conf | {name: value for name, value in settings.conf.items() if name not in _lists(conf)}


def _lists(conf: dict[str, str]) -> set[str]:
    return {"spark.jars", "spark.archives", "spark.executorEnv.PYTHONPATH"} & conf.keys()


def await_executors(spark: SparkSession, settings: SparkSettings, *, tasks: bool) -> None:
    """Waits for one executor, and tries its Python. Raises SparkUnavailableError."""
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    deadline = time.monotonic() + _EXECUTORS_S_MAX
    try:
        while len(tracker.getExecutorInfos()) < 2:  # the driver counts as one
            if time.monotonic() > deadline:
                raise SparkUnavailableError(
                    f"the master at {settings.master} has given no executor within "
                    f"{_EXECUTORS_S_MAX:.0f} s: start a worker that has a free core and "
                    f"{settings.executor_memory} of free memory, ask for less "
                    "(--executor-memory), or end what holds them; a worker's log may say that "
                    f"executors do not reach this process at "
                    f"{spark.conf.get('spark.driver.host')} (--driver-host)"
                )
            time.sleep(_LOOK_EVERY_S)
        if tasks:
            slots = spark.sparkContext.defaultParallelism
            spark.sparkContext.parallelize(range(slots), slots).foreach(_import_what_tasks_import)
    except SPARK_ERRORS as error:
        raise _unusable(error, spark) from error


def _import_what_tasks_import(_number: int) -> None:
    import_module("anabranch.spark_replay.audit.job")
    import_module("anabranch.spark_replay.backtest.job")


def _unusable(error: Exception, spark: SparkSession) -> SparkUnavailableError:
    python = os.environ["PYSPARK_PYTHON"]
    if _PYTHON_DIFFERS in str(error):
        return SparkUnavailableError(
            f"the workers' {python} is another Python than this one, "
            f"{spark.sparkContext.pythonVer}, with which its packages are shipped: name one of "
            f"that version on the workers by --spark-conf {PYTHON_SETTING}=PATH"
        )
    return SparkUnavailableError(
        f"the workers cannot run Python tasks with {python}: {cause(error)}. Name their Python "
        f"{spark.sparkContext.pythonVer} by --spark-conf {PYTHON_SETTING}=PATH"
    )
