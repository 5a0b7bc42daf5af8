"""A local Spark session: one JVM of this process, quiet, bound to this machine, tidy.

The connectors come from the same verified jars as the embedded Kafka's, on the driver's class path,
so nothing is fetched at the start. Python workers run this very interpreter with its installed
packages: a namespace package inside a wheel on the path would not be found before Python 3.14.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from anabranch.channel.embedded.jars import resolve
from anabranch.channel.embedded.java import find_java

_HOST: Final = "127.0.0.1"
_LOG_CONFIGURATION: Final = Path(__file__).with_name("log4j2.properties")
_FIXED: Final = {
    "spark.master": "local[*]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": _HOST,
    "spark.driver.host": _HOST,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.adaptive.enabled": "false",  # our plans name their partitions themselves
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.python.worker.reuse": "true",
    "spark.shuffle.compress": "true",
    "spark.checkpoint.compress": "true",
}


def default_parallelism() -> int:
    """How many tasks a local session runs at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def local_session(
    name: str, scratch: Path | None = None, more: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A Spark session whose files are below `scratch` (default: a temporary directory).

    Its process runs there too, since it makes a directory where it runs: what it is to read or
    write must be named by an absolute path. Raises EmbeddedError when Java or the connectors' jars
    are missing.
    """
    find_java()
    connectors = os.pathsep.join(str(jar) for jar in resolve("spark"))
    if scratch is not None:
        scratch.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="anabranch-spark-", dir=scratch)).absolute()
    settings = _FIXED | {
        "spark.app.name": name,
        "spark.driver.extraClassPath": connectors,
        "spark.driver.memory": _heap(),
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile={_LOG_CONFIGURATION.as_uri()} "
            f"-Djava.io.tmpdir={home} -Dderby.system.home={home}"
        ),
        "spark.local.dir": str(home),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        **(more or {}),
    }
    # Read by Spark's scripts and workers, not only by its configuration.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = _HOST
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _stderr_to(home / "spark.log"), chdir(home):
        spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """What is started meanwhile inherits this as its standard error.

    The JVM and Spark greet there before any logging is configured, and workers may complain; what
    matters comes back as an exception.
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
    """A third of this machine's memory, within what a replay can use."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    return f"{max(1024, min(6144, pages // 3))}m"
