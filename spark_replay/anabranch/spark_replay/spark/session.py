"""A Spark session: one JVM of this process, quiet and tidy, alone or the driver of a cluster's.

The connectors come from the same verified jars as the embedded Kafka's, on the driver's class path,
so nothing is fetched at the start. A session alone is bound to this machine, and its Python workers
run this very interpreter with its installed packages. A cluster's workers have their own
(`cluster`).
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.sql import SparkSession

from anabranch.jars.cache import resolve
from anabranch.jars.java import find_java
from anabranch.spark_replay.spark.cluster import (
    PYTHON_SETTING,
    SparkUnavailableError,
    await_executors,
    cluster_conf,
    reach_master,
)
from anabranch.spark_replay.spark.failures import SPARK_ERRORS, cause
from anabranch.spark_replay.spark.settings import SparkSettings

_HOST: Final = "127.0.0.1"
_LOG_CONFIGURATION: Final = Path(__file__).with_name("log4j2.properties")
_FIXED: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.adaptive.enabled": "false",  # our plans name their partitions themselves
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.python.worker.reuse": "true",
    "spark.shuffle.compress": "true",
    "spark.checkpoint.compress": "true",
}
_SHUFFLES: Final = "spark.sql.shuffle.partitions"
_TASKS_A_CORE: Final = 4  # few enough to start, and enough that none waits long for another
_ALONE: Final = SparkSettings()
_launched: Final[list[subprocess.Popen[bytes]]] = []


@contextmanager
def spark_session(
    name: str,
    scratch: Path | None = None,
    settings: SparkSettings = _ALONE,
) -> Iterator[SparkSession]:
    """Returns a Spark session whose files are below `scratch` (default: a temporary directory).

    Its process runs there too, since it makes a directory in its working directory. So the files
    that it reads or writes need absolute paths.

    Raises JavaUnavailableError, JarsUnavailableError or SparkUnavailableError.
    """
    find_java()
    connectors = resolve("spark")
    address = reach_master(settings) if settings.is_cluster else _HOST
    if scratch is not None:
        scratch.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="anabranch-spark-", dir=scratch)).absolute()
    conf = {**_conf(name, settings, home, connectors), **settings.conf}
    try:
        if settings.is_cluster:
            conf |= cluster_conf(settings, address, connectors)
        # Spark's scripts and workers read these only from the environment.
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["PYSPARK_PYTHON"] = settings.conf.get(PYTHON_SETTING, sys.executable)
        os.environ["SPARK_LOCAL_IP"] = address
        spark = _started(conf, settings, home)
        if settings.is_cluster:
            await_executors(spark, settings)
        if _SHUFFLES not in settings.conf:
            tasks_max = _TASKS_A_CORE * spark.sparkContext.defaultParallelism
            spark.conf.set(_SHUFFLES, str(tasks_max))
        yield spark
        spark.stop()
    except BaseException as error:
        with _ctrl_c(signal.SIG_IGN):  # a second one would stop the cleaning up halfway
            interrupted = _is_from_interrupt(error)
            if interrupted:
                kill_jvm()  # it may be in the middle of an answer: nothing else can be asked
            elif SparkContext._active_spark_context is not None:
                SparkContext._active_spark_context.stop()
        if interrupted and not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise
    finally:
        with _ctrl_c(signal.SIG_IGN):
            shutil.rmtree(home, ignore_errors=True)


def _conf(
    name: str, settings: SparkSettings, home: Path, connectors: Sequence[Path]
) -> dict[str, str]:
    return _FIXED | {
        "spark.master": settings.master,
        "spark.app.name": f"anabranch {name}",
        "spark.driver.host": _HOST,
        "spark.driver.bindAddress": _HOST,
        "spark.driver.extraClassPath": os.pathsep.join(map(str, connectors)),
        "spark.driver.memory": _heap(),
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile={_LOG_CONFIGURATION.as_uri()} "
            f"-Djava.io.tmpdir={home} -Dderby.system.home={home}"
        ),
        "spark.local.dir": str(home),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
    }


def _started(conf: Mapping[str, str], settings: SparkSettings, home: Path) -> SparkSession:
    setattr(java_gateway, "Popen", _launch)  # noqa: B010 - it is no part of its interface
    builder = SparkSession.builder
    for key, value in conf.items():
        builder = builder.config(key, value)
    try:
        with _stderr_to(home / "spark.log"), chdir(home):
            with _ctrl_c():  # a context of Spark takes it for itself
                SparkContext.getOrCreate(SparkConf().setAll(list(conf.items())))
            return builder.getOrCreate()
    except SPARK_ERRORS as error:
        raise SparkUnavailableError(
            f"Spark at {settings.master} did not start: {cause(error)}"
        ) from error


def _launch(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
    """Starts the JVM for PySpark, which tells of it only once it has answered."""
    process = subprocess.Popen(*arguments, **options)
    _launched.append(process)
    return process


def _is_from_interrupt(error: BaseException | None) -> bool:
    """Returns True if a Ctrl-C caused the error. Cleaning up behind it may fail in other words."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


def kill_jvm() -> None:
    """Ends the JVM that this process started, because it would write in a place that must be left
    empty.
    """
    for started in _launched:
        # Python would tell it of each object that is left here, in vain and with a trace.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        started.kill()
        started.wait()


@contextmanager
def _ctrl_c(meanwhile: signal.Handlers | None = None) -> Iterator[None]:
    """Restores the handler of Ctrl-C behind the block, in which `meanwhile` counts, if given."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if meanwhile is not None:
        signal.signal(signal.SIGINT, meanwhile)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Lets processes that start meanwhile inherit this as their standard error.

    The JVM and Spark greet there before any logging is configured, and workers may complain. Errors
    that matter come back as exceptions.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _heap() -> str:
    """Returns a third of this machine's memory, within the bounds of a replay."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    return f"{max(1024, min(6144, pages // 3))}m"
