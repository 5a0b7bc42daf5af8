"""The progress of a long job on standard error: a line that renews itself, or plain lines in a
file.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TextIO

from pyspark.sql import SparkSession

from anabranch.spark_replay.spark.session import spark_session
from anabranch.spark_replay.spark.settings import SparkSettings

_TERMINAL_S: Final = 0.5
_PLAIN_S: Final = 10.0
_CLEAR: Final = "\r\x1b[K"

Tasks = tuple[int, int]  # done, and in all, of what runs now


class Progress:
    """Tells the steps of one job. Steps and ticks may come from different threads."""

    def __init__(
        self, job: str, to: TextIO, *, is_terminal: bool, now: Callable[[], float]
    ) -> None:
        self._job = job
        self._to = to
        self._now = now
        self._is_terminal = is_terminal
        self._lock = threading.Lock()
        self._what = ""
        self._began_s = self._told_s = 0.0
        self._tasks: Callable[[], Tasks] = lambda: (0, 0)

    @property
    def every_s(self) -> float:
        """Returns the seconds after which `tick` has something to tell."""
        return _TERMINAL_S if self._is_terminal else _PLAIN_S

    def follow(self, spark: SparkSession) -> None:
        """Tells the progress of Spark's work, too, from now on."""
        tracker = spark.sparkContext.statusTracker()

        def tasks() -> Tasks:
            stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
            known = [each for each in stages if each is not None]
            return sum(each.numCompletedTasks for each in known), sum(e.numTasks for e in known)

        self._tasks = tasks

    def step(self, what: str) -> None:
        """Begins another step. "" means that nothing more comes."""
        with self._lock:
            self._what, self._began_s = what, self._now()
            self._tell((0, 0))

    def tick(self) -> None:
        """Tells the duration of the step, and the progress of Spark's work."""
        with self._lock:
            if not self._what or self._now() - self._told_s < self.every_s:
                return
        done: Tasks = (0, 0)
        with suppress(Exception):  # Spark is on its way out, or not there yet: only a figure less
            done = self._tasks()
        with self._lock:
            if self._what:
                self._tell(done)

    def _tell(self, tasks: Tasks) -> None:
        self._told_s = self._now()
        line = f"{self._job}: {self._what}" if self._what else ""
        passed_s = self._told_s - self._began_s
        if line and passed_s >= 1:
            line += f", {passed_s:.0f} s"
        if line and tasks[1]:
            line += f", {tasks[0]} of {tasks[1]} tasks"
        with suppress(OSError, ValueError):  # standard error may be closed
            if self._is_terminal:
                self._to.write(_CLEAR + line)
            elif line:
                self._to.write(line + "\n")
            self._to.flush()


@contextmanager
def telling(job: str) -> Iterator[Progress]:
    """Tells progress on standard error while the block runs, even if that is redirected
    meanwhile.
    """
    sys.stderr.flush()
    with os.fdopen(os.dup(2), "w", encoding="utf-8") as to:
        progress = Progress(job, to, is_terminal=to.isatty(), now=time.monotonic)
        ended = threading.Event()

        def tick() -> None:
            while not ended.wait(progress.every_s):
                progress.tick()

        thread = threading.Thread(target=tick, name="progress", daemon=True)
        thread.start()
        try:
            yield progress
        finally:
            ended.set()
            thread.join()
            progress.step("")


@contextmanager
def told_session(
    job: str, scratch: Path | None, settings: SparkSettings, *, tasks: bool = True
) -> Iterator[tuple[SparkSession, Progress]]:
    """Returns a session whose job tells its progress. See `spark_session`."""
    with telling(job) as progress:
        progress.step("starting Spark")
        with spark_session(f"anabranch {job}", scratch, settings, tasks=tasks) as spark:
            progress.follow(spark)
            yield spark, progress
