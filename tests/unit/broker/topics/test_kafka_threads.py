"""Threads that ask Kafka: how many jobs they take, and when none."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from anabranch.broker.errors import UnavailableError
from anabranch.broker.topics.kafka_threads import KafkaThreads
from support.waiting import WAIT_S


class _Keeper:
    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("began", [False, True])
def test_a_job_that_comes_after_the_end_is_refused_and_not_left_undone(began: bool) -> None:
    opened = _Keeper()
    threads = KafkaThreads("jobs", lambda: opened, 10)
    if began:
        assert threads.submit(lambda keeper: keeper is opened).result(WAIT_S)
    threads.close()
    assert opened.is_closed is began
    with pytest.raises(UnavailableError, match="this node is stopping"):
        threads.submit(lambda _: None)


def test_jobs_beyond_the_bound_are_refused_until_others_are_over() -> None:
    go_on = threading.Event()
    threads = KafkaThreads("jobs", _Keeper, 2)
    waiting: list[Future[bool]] = [
        threads.submit(lambda _: go_on.wait(WAIT_S)),
        threads.submit(lambda _: True),
    ]
    with pytest.raises(UnavailableError, match="2 jobs wait already"):
        threads.submit(lambda _: True)
    assert waiting.pop().cancel()
    assert threads.submit(lambda _: True) is not None
    go_on.set()
    assert waiting[0].result(WAIT_S)
    threads.close()
