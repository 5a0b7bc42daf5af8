"""When a node's threads call a task of a topic done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from anabranch.broker.topics.controllers.worker import WorkerPool
from anabranch.channel.errors import KafkaRefusedError
from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.core.entities.segment import SegmentInfo, new_segment
from anabranch.core.topics.tasks import MakeSegments, TaskDone, TaskFailed
from anabranch.wire import clock
from support.memory_segments import MemorySegments
from support.waiting import WAIT_S

TOPIC = "public/default/orders"


class CopiedSegments(MemorySegments):
    """Of several copies, which begin to follow when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self.copied = threading.Event()

        self.fault: Exception | None = None

    def await_copies(self, topics: Sequence[SegmentTopic], timeout_s: float) -> bool:
        self.asked.set()
        if self.fault is not None:
            raise self.fault
        return self.copied.wait(WAIT_S)


@pytest.fixture
def keeper() -> CopiedSegments:
    return CopiedSegments()


@pytest.fixture
def pool_of(keeper: CopiedSegments) -> Iterator[Callable[..., WorkerPool]]:
    pools: list[WorkerPool] = []
    double: Any = keeper

    def made(copies: int, now: Callable[[], float] = clock.now) -> WorkerPool:
        pools.append(WorkerPool(lambda: double, "", copies, now=now))
        return pools[-1]

    yield made
    keeper.copied.set()
    for pool in pools:
        pool.close()


def child(segment_id: int) -> SegmentInfo:
    part = new_segment(segment_id, 0, 0xFFFF, 1)
    return SegmentInfo(
        **{name: getattr(part, name) for name in part.__struct_fields__} | {"parent_ids": (0,)}
    )


def test_children_are_made_once_kafka_copies_them_and_keep_no_other_topic_waiting(
    keeper: CopiedSegments, pool_of: Callable[..., WorkerPool]
) -> None:
    pool = pool_of(3)
    made = pool.task(MakeSegments(TOPIC, 7, (child(1), child(2))))
    assert keeper.asked.wait(WAIT_S)
    new = pool.task(MakeSegments("public/default/bills", 8, (new_segment(0, 0, 0xFFFF, 1),)))
    assert isinstance(new.result(WAIT_S), TaskDone)
    assert not made.done()
    keeper.copied.set()
    assert made.result(WAIT_S) == TaskDone()


def test_the_time_for_copies_counts_from_the_making_however_many_wait(
    keeper: CopiedSegments, pool_of: Callable[..., WorkerPool]
) -> None:
    now = [0.0]
    pool = pool_of(3, lambda: now[0])
    first = pool.task(MakeSegments(TOPIC, 7, (child(1),)))
    assert keeper.asked.wait(WAIT_S)
    keeper.asked.clear()
    later = [pool.task(MakeSegments(TOPIC, 7, (child(n),))) for n in (2, 3)]
    pool.task(MakeSegments(TOPIC, 7, (new_segment(0, 0, 0xFFFF, 1),))).result(WAIT_S)
    now[0] = 2.5
    keeper.copied.set()
    assert [each.result(WAIT_S) for each in (first, *later)] == [TaskDone()] * 3
    assert not keeper.asked.is_set()


def test_a_fault_while_copies_are_awaited_is_the_tasks(
    keeper: CopiedSegments, pool_of: Callable[..., WorkerPool]
) -> None:
    keeper.fault = TypeError("a fault")
    with pytest.raises(TypeError, match="a fault"):
        pool_of(3).task(MakeSegments(TOPIC, 7, (child(1),))).result(WAIT_S)


def test_what_has_one_copy_waits_for_none(
    keeper: CopiedSegments, pool_of: Callable[..., WorkerPool]
) -> None:
    made = pool_of(1).task(MakeSegments(TOPIC, 7, (child(1),)))
    assert made.result(WAIT_S) == TaskDone()
    assert not keeper.asked.is_set()


def test_what_kafka_refuses_to_make_waits_for_no_copies(
    keeper: CopiedSegments, pool_of: Callable[..., WorkerPool]
) -> None:
    keeper.failure = KafkaRefusedError("no right to create topics")
    made = pool_of(3).task(MakeSegments(TOPIC, 7, (child(1),)))
    assert made.result(WAIT_S) == TaskFailed("no right to create topics", for_good=True)
    assert not keeper.asked.is_set()


def test_children_are_made_without_their_copies_where_the_node_stops(
    keeper: CopiedSegments, pool_of: Callable[..., WorkerPool]
) -> None:
    pool = pool_of(3)
    first = pool.task(MakeSegments(TOPIC, 7, (child(1),)))
    assert keeper.asked.wait(WAIT_S)
    second = pool.task(MakeSegments(TOPIC, 7, (child(2),)))
    pool.task(MakeSegments(TOPIC, 7, (new_segment(0, 0, 0xFFFF, 1),))).result(WAIT_S)
    closing = threading.Thread(target=pool.close)
    closing.start()
    assert second.result(WAIT_S) == TaskDone()
    keeper.copied.set()
    assert first.result(WAIT_S) == TaskDone()
    closing.join(WAIT_S)
