"""How a node's work on Kafka topics is spread over threads: nobody waits for another's trouble."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from anabranch.broker.errors import UnavailableError
from anabranch.broker.topics.controllers.worker import Worker
from anabranch.channel.errors import KafkaUnreachableError
from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.core.placement.room import Room
from support.http import http_nodes
from support.memory_cluster import WAIT_S, until
from support.memory_segments import MemorySegments

HOME = "/admin/v2/scalable/public/default"
STUCK = 7
SHORT_S = 3.0


class StuckSegments(MemorySegments):
    """Kafka never answers about topics whose names say so; the longer waits end with the test."""

    def __init__(self) -> None:
        super().__init__()
        self.tried: list[str] = []
        self.hold.clear()

    def _begin(self, what: str) -> None:
        self.calls.append(what)

    def create(
        self, topics: Sequence[SegmentTopic], deadline_s: float, room: Room | None = None
    ) -> None:
        name = topics[0].name
        if "stuck" not in name:
            super().create(topics, deadline_s, room)
            return
        self.tried.append(name)
        if deadline_s > SHORT_S:
            self.hold.wait(60.0)
        raise KafkaUnreachableError("Kafka did not answer")


async def test_topics_that_kafka_does_not_answer_for_hold_up_no_others() -> None:
    async with http_nodes() as (nodes, cluster):
        stuck = cluster.segments = StuckSegments()
        http = nodes[0].http
        hopeless = [asyncio.create_task(http.put(f"{HOME}/stuck-{n}")) for n in range(STUCK)]
        try:
            await until(lambda: len(set(stuck.tried)) == STUCK)
            await until(lambda: len(stuck.tried) > STUCK)  # one is tried again, and waits long
            assert (await http.put(f"{HOME}/fine")).status_code == 204
            assert (await http.post(f"{HOME}/fine/split/0")).status_code == 204
            assert not any(task.done() for task in hopeless)
        finally:
            stuck.hold.set()
            for task in hopeless:
                task.cancel()
            await asyncio.gather(*hopeless, return_exceptions=True)


def test_a_job_that_comes_when_its_worker_is_closed_is_refused_and_not_left_undone() -> None:
    opened = MemorySegments()
    for began in (False, True):
        worker = Worker(lambda: opened)
        if began:
            assert worker.submit(lambda keeper: keeper is opened).result(WAIT_S)
        worker.close(WAIT_S)
        with pytest.raises(UnavailableError, match="this node is stopping"):
            worker.submit(lambda _: None)
