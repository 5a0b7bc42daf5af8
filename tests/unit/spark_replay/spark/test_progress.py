"""What a long job tells of itself, without Spark."""

from __future__ import annotations

import io

from anabranch.spark_replay.spark.progress import Progress


class Told:
    """A job's progress on a clock of the test's own."""

    def __init__(self, *, is_terminal: bool) -> None:
        self.now_s = 100.0
        self.to = io.StringIO()
        self.progress = Progress("audit", self.to, is_terminal=is_terminal, now=lambda: self.now_s)
        self.progress._tasks = lambda: (45, 200)

    def after(self, seconds: float) -> str:
        """What is said when so much more time has passed."""
        begin = self.to.tell()
        self.now_s += seconds
        self.progress.tick()
        return self.to.getvalue()[begin:]


def test_in_a_file_each_step_is_a_line_and_a_long_one_tells_now_and_then() -> None:
    told = Told(is_terminal=False)
    told.progress.step("starting Spark")
    told.progress.step("replaying the log")
    assert told.to.getvalue() == "audit: starting Spark\naudit: replaying the log\n"
    assert told.after(9.0) == ""
    assert told.after(1.0) == "audit: replaying the log, 10 s, 45 of 200 tasks\n"
    assert told.after(5.0) == ""
    assert told.after(5.0) == "audit: replaying the log, 20 s, 45 of 200 tasks\n"
    told.progress.step("")
    assert told.after(100.0) == ""
    assert "\x1b" not in told.to.getvalue()


def test_on_a_terminal_one_line_renews_itself_and_is_gone_at_the_end() -> None:
    told = Told(is_terminal=True)
    told.progress.step("replaying the log")
    assert told.after(3.0) == "\r\x1b[Kaudit: replaying the log, 3 s, 45 of 200 tasks"
    told.progress.step("")
    assert told.to.getvalue().endswith("\r\x1b[K")
    assert "\n" not in told.to.getvalue()


def test_nobody_who_listens_and_no_spark_any_more_are_no_failures() -> None:
    def gone() -> tuple[int, int]:
        raise ConnectionError

    told = Told(is_terminal=False)
    told.progress._tasks = gone
    told.progress.step("replaying the log")
    assert told.after(10.0) == "audit: replaying the log, 10 s\n"
    told.to.close()
    told.now_s += 20.0
    told.progress.tick()
