"""A standalone Spark of a master and workers, each a process, as PySpark brings them along.

The workers run the Python of the tests, with its modules. `BARE_PYTHON`, the one that this
environment was made from, has none of our packages. A worker is killed with all that it has
started, as a machine is; if the test run itself is killed, nothing is left behind
(`devkit.kafka.supervisor`).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from anabranch.devkit.kafka import supervisor
from anabranch.jars.ivy import pyspark_jars
from support.processes import await_gone, descendants
from support.there import there
from support.waiting import WAIT_S

BARE_PYTHON: Final = str(
    Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")
)
# Of a Spark that lives for seconds, the second compiler and the threads of the usual collector take
# more than they give back.
SHORT_LIVED_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_HOST: Final = "127.0.0.1"
_MASTER: Final = re.compile(r"Starting Spark master at (spark://\S+)")


class SparkWorker:
    """A worker with its executors, which are its children."""

    def __init__(self, folder: Path, master: str) -> None:
        (folder / "tmp").mkdir(parents=True)
        self.folder = folder
        self._log = folder / "worker.log"
        self._process = _started(
            self._log,
            {
                "SPARK_LOCAL_DIRS": str(folder / "local"),
                # Executors inherit it.
                "JAVA_TOOL_OPTIONS": f"{SHORT_LIVED_JVM} -Djava.io.tmpdir={folder / 'tmp'}",
            },
            *("worker.Worker", "--host", _HOST, "--port", "0", "--webui-port", "0"),
            *("--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work"), master),
        )

    def await_registered(self) -> None:
        until(lambda: "Successfully registered" in self._log.read_text(), self._log)

    def shuffled_bytes(self) -> int:
        """Returns how much of shuffles' output lies here, for other tasks to fetch."""
        found = 0
        for path in self.folder.glob("local/**/shuffle_*.data"):
            try:
                found += path.stat().st_size
            except FileNotFoundError:
                continue  # a job has ended meanwhile
        return found

    def kill(self) -> None:
        """Ends it and all that it has started, at once."""
        _killed(self._process)


class SparkCluster:
    """A running standalone Spark."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "master.log"
        self._process = _started(
            self._log,
            {"JAVA_TOOL_OPTIONS": SHORT_LIVED_JVM},
            *("master.Master", "--host", _HOST, "--port", "0", "--webui-port", "0"),
        )
        self.workers: list[SparkWorker] = []
        try:
            until(lambda: _MASTER.search(self._log.read_text()) is not None, self._log)
            self.master = there(_MASTER.search(self._log.read_text()))[1]
            for number in range(2):
                self.workers.append(SparkWorker(folder / f"worker-{number}", self.master))
            for worker in self.workers:
                worker.await_registered()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        _killed(self._process)


@contextmanager
def spark_cluster(folder: Path) -> Iterator[SparkCluster]:
    """A master and two workers of one core each, while the block runs."""
    cluster = SparkCluster(folder)
    try:
        yield cluster
    finally:
        cluster.close()


def until(holds: Callable[[], bool], log: Path) -> None:
    """Waits for what a process brings about; fails with its log when that takes too long."""
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.01)


def _killed(process: subprocess.Popen[bytes]) -> None:
    every = [process.pid, *descendants(process.pid)]
    for pid in every:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()
    await_gone(every)


def _started(log: Path, more: dict[str, str], *arguments: str) -> subprocess.Popen[bytes]:
    home = pyspark_jars().parent
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYSPARK_", "SPARK_"))
    }
    with log.open("wb") as output:
        return subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", supervisor.__file__),
                home / "bin/spark-class",
                f"org.apache.spark.deploy.{arguments[0]}",
                *arguments[1:],
            ],
            env=environment | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": _HOST} | more,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
