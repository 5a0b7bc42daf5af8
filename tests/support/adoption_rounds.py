"""A Kafka topic with writers of each kind is cut over under load, and what comes of it is judged.

Producers of others and of the SDK take turns at the same keys, each only after the other's message
was acknowledged. Beside them others write keys of their own, in batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from anabranch.client import Client
from support.alternation import Alternation
from support.old_topics import adopted, write
from support.plain_writers import KINDS, JavaWriter, plain_senders
from support.several_brokers import Reading
from support.topic_cluster import TopicCluster
from support.traffic import Traffic, stored, wrong
from support.waiting import until

_SHARED_KEYS = 6
_TURNS = 20 * _SHARED_KEYS  # messages before the cut-over, and after it
_PAUSE_S = 0.01
_SEGMENTS = 8


async def cut_over_under_load(cluster: TopicCluster, client: Client, java: Any, old: str) -> None:
    """Fails if what was acknowledged is lost, comes twice or before its cause."""
    before = await asyncio.to_thread(write, cluster.kafka, old)
    topic = await adopted(cluster, old)
    early = [await client.create_producer(topic, linger_ms=linger) for linger in (0, 5)]
    reading = Reading(await client.subscribe(topic, "billing"), repeats=False)
    history = Alternation(_SHARED_KEYS)
    receiving = asyncio.create_task(history.receive(await client.subscribe(topic, "history")))
    keys = [b"java-%d" % each for each in range(30)]
    batches = await asyncio.to_thread(JavaWriter, java, cluster.kafka, old, keys)
    traffic = Traffic(early[1], [b"sdk-%d" % each for each in range(30)], _PAUSE_S)
    async with plain_senders(java, cluster.kafka, old) as senders:
        plain = len(senders)
        senders += [each.send for each in early]
        running = asyncio.create_task(history.run(senders))
        await history.more(_TURNS)
        cutting = asyncio.create_task(cluster.prepare(topic, _SEGMENTS))
        middle = await client.create_producer(topic)
        senders.append(middle.send)
        await cutting
        late = await client.create_producer(topic)
        senders.append(late.send)
        await history.more(_TURNS)
        await until(lambda: running.done() or len(history.refused) == plain)
        await ended(running)
    of_java = await batches.stop()
    sent = before | of_java | await traffic.stop()
    await until(lambda: receiving.done() or not history.missing())
    await ended(receiving)
    assert not history.missing()
    assert history.repeated() == history.stored_twice() == []
    assert history.turned_when_stored() == history.turned_when_delivered() == []
    assert not history.received_though_refused()
    told = dict(zip(KINDS, (history.refused[place] for place in range(plain)), strict=True))
    assert told == REFUSALS
    assert batches.failed
    layout = max((each.layout for each in (*early, late)), key=lambda each: each.age)
    assert len(layout.active) == _SEGMENTS

    def judged(found: Mapping[bytes, list[bytes]]) -> list[str]:
        """Without what came of other keys, and of what Java did not hear of."""
        unsure = dict.fromkeys(of_java, batches.failed)
        left = {
            key: [v for v in found.get(key, ()) if v not in unsure.get(key, ())] for key in sent
        }
        return wrong(left, sent)

    assert judged(await asyncio.to_thread(stored, cluster.kafka, layout)) == []
    await until(lambda: all(len(reading.received[key]) >= len(sent[key]) for key in sent))
    assert judged(await reading.all_of({})) == []
    for each in (*early, middle, late):
        await each.close()


# How each kind of plain producer says that Kafka refuses it for good.
REFUSALS = {
    "java": "RecordTooLargeException",
    "librdkafka": "MSG_SIZE_TOO_LARGE",
    "aiokafka": "MessageSizeTooLargeError",
}


async def ended(task: asyncio.Task[None]) -> None:
    """Ends what goes on for ever. Raises what it has ended with."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
