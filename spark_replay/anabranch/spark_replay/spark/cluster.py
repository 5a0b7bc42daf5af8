"""A session on a standalone Spark: its needs beyond those of a local one, and a test of them.

Spark waits without an end for executors that never come, and tells nothing useful of a master that
does not answer. It tries a task four times if Python does not fit. So this module asks for all that
beforehand. Workers need this release, installed with the extra `spark`.
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

PYTHON_SETTING: Final = "spark.pyspark.python"
_MASTER_S_MAX: Final = 10.0
_EXECUTORS_S_MAX: Final = 60.0
_LOOK_EVERY_S: Final = 0.1
_ALL_INTERFACES: Final = "0.0.0.0"  # noqa: S104 - where the address that others use is not ours


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
    settings: SparkSettings, address: str, connectors: Sequence[Path]
) -> dict[str, str]:
    """Returns Spark's configuration of the executors. A user's `spark.jars` come behind ours."""
    elsewhere = "spark.driver.host" in settings.conf
    jars = [*(jar.as_uri() for jar in connectors), settings.conf.get("spark.jars", "")]
    return {
        "spark.driver.host": address,
        "spark.driver.bindAddress": _ALL_INTERFACES if elsewhere else address,
        **settings.conf,
        "spark.jars": ",".join(filter(None, jars)),
    }


def await_executors(spark: SparkSession, settings: SparkSettings) -> None:
    """Waits for one executor, and tries its Python. Raises SparkUnavailableError."""
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    deadline = time.monotonic() + _EXECUTORS_S_MAX
    try:
        while len(tracker.getExecutorInfos()) < 2:  # the driver counts as one
            if time.monotonic() > deadline:
                raise SparkUnavailableError(
                    f"the master at {settings.master} has given no executor within "
                    f"{_EXECUTORS_S_MAX:.0f} s: start a worker that has a free core and memory, "
                    "ask for less (--spark-conf spark.executor.memory=512m), or end what holds "
                    "them; a worker's log may say that executors do not reach this process at "
                    f"{spark.conf.get('spark.driver.host')} (--spark-conf spark.driver.host=HOST)"
                )
            time.sleep(_LOOK_EVERY_S)
        slots = spark.sparkContext.defaultParallelism
        spark.sparkContext.parallelize(range(slots), slots).foreach(_import_what_tasks_import)
    except SPARK_ERRORS as error:
        raise SparkUnavailableError(
            f"the workers cannot run Python tasks with {os.environ['PYSPARK_PYTHON']}: "
            f"{cause(error)}. Install this release with Python {spark.sparkContext.pythonVer} "
            f"there, anabranch[spark], and name that Python by --spark-conf {PYTHON_SETTING}=PATH"
        ) from error


def _import_what_tasks_import(_number: int) -> None:
    import_module("anabranch.spark_replay.audit.job")
    import_module("anabranch.spark_replay.backtest.run")
