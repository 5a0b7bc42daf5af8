"""The images' standalone Spark loses a worker in the middle of an audit: the same answer."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import docker
import pytest

from faults.leftovers import labels, uninterrupted
from faults.stack import KAFKAS, NODES, Setup, Stack

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1_800), pytest.mark.usefixtures("engine")]

_IMAGE: Final = "anabranch-spark:dev"
_MASTER: Final = "spark-master"
_WORKERS: Final = ("spark-worker-1", "spark-worker-2")
_URL: Final = f"spark://{_MASTER}:7077"
_ARCHIVE: Final = "/var/lib/archive"
_DEADLINE_S: Final = 400.0
_TENANTS: Final = 40
_LISTENS: Final = "exec 3<>/dev/tcp/{0}/7077"
_RUNS_A_TASK: Final = "grep -qs 'Running task' /var/lib/anabranch/work/app-*/*/stderr"


class SparkContainers:
    """A master, two workers and jobs, with one volume for archives, in a stack's network."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._client: Any = docker.from_env()
        self._volume: Any = None
        self._made: list[Any] = []

    def __enter__(self) -> Self:
        try:
            self._volume = self._client.volumes.create(labels=labels())
            self.start(_MASTER, "master")
            self._await_master()
            for name in _WORKERS:
                self.start(name, "worker", "--cores", "1", "--memory", "1g", _URL)
        except BaseException:
            with uninterrupted():
                self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with uninterrupted():
            self._end()

    def start(self, name: str, *command: str) -> Any:
        """Starts a part or a job."""
        self._made.append(
            self._client.containers.run(
                _IMAGE,
                list(command),
                name=f"{self._stack.network}-{name}",
                hostname=name,
                network=self._stack.network,
                environment={"ANABRANCH_BOOTSTRAP_SERVERS": f"{KAFKAS[0]}:9092"},
                volumes={self._volume.name: {"bind": _ARCHIVE, "mode": "rw"}},
                labels=labels(),
                detach=True,
            )
        )
        return self._made[-1]

    def job(self, name: str, *command: str) -> str:
        """Runs a job to its end; returns what it printed."""
        return self.printed(self.start(name, *command))

    def printed(self, job: Any) -> str:
        status = job.wait(timeout=_DEADLINE_S)["StatusCode"]
        assert status == 0, job.logs().decode(errors="replace")[-4_000:]
        return str(job.logs(stdout=True, stderr=False).decode())

    def worker_at_work(self) -> Any:
        """Waits for a worker whose executor runs a task."""
        workers = self._made[1 : 1 + len(_WORKERS)]
        deadline = time.monotonic() + _DEADLINE_S
        while time.monotonic() < deadline:
            for worker in workers:
                if worker.exec_run(["sh", "-c", _RUNS_A_TASK]).exit_code == 0:
                    return worker
            time.sleep(0.1)
        raise AssertionError("no worker was given a task")

    def _await_master(self) -> None:
        """A job that finds no master says so, and ends."""
        (master,) = self._made
        deadline = time.monotonic() + _DEADLINE_S
        while master.exec_run(["bash", "-c", _LISTENS.format(_MASTER)]).exit_code:
            assert time.monotonic() < deadline, master.logs().decode(errors="replace")[-4_000:]
            time.sleep(0.1)

    def _end(self) -> None:
        for container in reversed(self._made):
            with contextlib.suppress(docker.errors.APIError):
                container.remove(force=True, v=True)
        if self._volume is not None:
            with contextlib.suppress(docker.errors.APIError):
                self._volume.remove(force=True)
        self._client.close()


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """One Kafka and one node, which has a log to be judged."""
    with Stack(tmp_path, 0, Setup(KAFKAS[:1], NODES[:1], parts=())) as running:
        for number in range(_TENANTS):
            tenant = ["anabranch", "tenants", "create", f"tenant-{number}"]
            done = running.container(NODES[0]).exec_run(tenant)
            assert done.exit_code == 0, done.output
        running.container(NODES[0]).stop()  # so that every audit finds the same log
        yield running


def test_a_worker_is_killed_in_the_middle_of_an_audit(stack: Stack) -> None:
    with SparkContainers(stack) as spark:
        place = ("--archive-dir", f"file://{_ARCHIVE}/river")
        on_cluster = ("--master", _URL, "--executor-memory", "512m")
        said = spark.job("archive", "archive", "--once", *place, *on_cluster)
        assert said.startswith("archived up to offset ")
        alone = spark.job("audit-alone", "audit", "--json", *place)
        audit = spark.start("audit", "audit", "--json", *place, *on_cluster)
        victim = spark.worker_at_work()
        victim.kill()
        audit.reload()
        assert audit.status == "running", "it had ended before the worker was killed"
        found, expected = (json.loads(each) for each in (spark.printed(audit), alone))
        assert found.pop("seconds") > 0
        assert expected.pop("seconds") > 0
        assert found == expected
        assert found["sound"] is True
        assert found["records"] > _TENANTS
