"""The SDK without asyncio, against real nodes and a real Kafka."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest

from anabranch.client import sync
from support.topic_cluster import TopicCluster
from support.waiting import WAIT_S

_COUNT = 50


def _script(url: str, topic: str) -> None:
    wanted = {b"%d" % number for number in range(_COUNT)}
    with sync.Client(url) as client:
        with client.create_producer(topic, linger_ms=0) as producer:
            assert producer.send_many((f"k{n % 7}", b"%d" % n) for n in range(_COUNT - 1)) == 49
            soon = time.time_ns() // 1_000_000 + 60_000
            last = producer.send(b"%d" % (_COUNT - 1), key="last", event_time_ms=soon)
            assert last.offset >= 0
            producer.flush()
            assert producer.under_way == 0

        assert {each.value for each in client.peek(topic, _COUNT, start="earliest")} == wanted
        assert [each.value for each in client.peek(topic, 1)] == [b"%d" % (_COUNT - 1)]
        assert client.peek(topic, start=last.timestamp_ms + 1, timeout_s=WAIT_S) == []

        stream = client.subscribe(topic, "stream", "one")
        received = list(itertools.islice(stream, _COUNT))
        assert {message.value for message in received} == wanted
        stream.acknowledge(received[-1])
        stream.acknowledge_all()
        stream.flush()
        stream.close()
        assert list(stream) == []

        with client.subscribe_queue(topic, "queue") as jobs:
            done = set()
            for job in jobs:
                done.add(job.value)
                assert jobs.acknowledge(job)
                if len(done) == _COUNT:
                    break
        assert done == wanted

        asked = []

        def position_of(segment_id: int, bucket: int) -> int | None:
            asked.append((segment_id, bucket))
            return 0

        with client.subscribe_checkpoint(topic, "files", position_of=position_of) as positions:
            seen: set[bytes] = set()
            while seen != wanted:
                seen |= set(positions.receive_many(timeout_s=WAIT_S).values())
            positions.saved(positions.checkpoint())
            assert set(asked) == set(positions.buckets)


@pytest.mark.parametrize("segments", [2])
async def test_a_script_produces_iterates_and_settles_without_asyncio(
    cluster: TopicCluster, topic: str
) -> None:
    await asyncio.to_thread(_script, cluster.url, f"topic://{topic}")
