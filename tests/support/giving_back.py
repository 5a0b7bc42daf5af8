"""A Kafka topic that was cut over is given back under load, and what comes of it is judged.

Its own writers never stop. They are refused between, and what they are told is stored is delivered.
Producers of the SDK take turns at the same keys, each only after the other's message was
acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from anabranch.client import Client
from support.adoption_rounds import ended
from support.alternation import Alternation, Send
from support.old_topics import adopted, write
from support.plain_writers import LibrdkafkaWriter
from support.several_brokers import Reading
from support.topic_cluster import TopicCluster
from support.traffic import Traffic, wrong
from support.waiting import WAIT_S, eventually, until

_SHARED_KEYS = 6
_TURNS = 10 * _SHARED_KEYS  # messages in each state of the topic
_STORED = 200  # of plain writers, likewise


async def given_back_under_load(
    cluster: TopicCluster,
    client: Client,
    old: str,
    rounds: Sequence[int],
    plain_senders: Sequence[Send] = (),
) -> None:
    """Cuts over to each of these numbers of segments, and gives back. `plain_senders` take turns at
    the shared keys, too, once it was given back the last time.

    Fails if what was acknowledged is lost, comes twice or before its cause.
    """
    sent = await asyncio.to_thread(write, cluster.kafka, old)
    topic = await adopted(cluster, old)
    reading = Reading(await client.subscribe(topic, "billing"), repeats=False)
    history = Alternation(_SHARED_KEYS)
    receiving = asyncio.create_task(history.receive(await client.subscribe(topic, "history")))
    plain = LibrdkafkaWriter(cluster.kafka, old, [b"plain-%d" % number for number in range(40)])
    producers = [await client.create_producer(topic, linger_ms=linger) for linger in (0, 5)]
    traffic = Traffic(producers[1], [b"sdk-%d" % number for number in range(40)], 0.004)
    senders: list[Send] = [each.send for each in producers]
    running = asyncio.create_task(history.run(senders))
    await until(partial(_has_stored, plain, _STORED), WAIT_S)
    for segments in rounds:
        await history.more(_TURNS)
        await _once_settled(partial(cluster.prepare, topic, segments))
        await until(lambda: bool(plain.refused), WAIT_S)
        await cluster.split_any(topic)
        await history.more(_TURNS)
        await give_back(cluster, topic)
        more = _STORED + sum(map(len, plain.acked.values()))
        await until(partial(_has_stored, plain, more), WAIT_S)
        plain.refused.clear()
        assert len(await cluster.active(topic)) == 1
        await eventually(lambda: _prune(cluster, topic), WAIT_S)
    senders += plain_senders
    await history.more(_TURNS)
    await ended(running)
    sent |= await plain.stop() | await traffic.stop()
    await until(lambda: receiving.done() or not history.missing(), WAIT_S)
    await ended(receiving)
    assert not history.missing()
    assert history.repeated() == history.stored_twice() == []
    assert history.turned_when_stored() == history.turned_when_delivered() == []
    await until(lambda: all(len(reading.received[key]) >= len(sent[key]) for key in sent), WAIT_S)
    found = await reading.all_of({})
    assert wrong({key: found[key] for key in sent}, sent) == []


# Of a node, so that a topic may be cut over and given back some seconds after the other.
SOON = {
    "scalableTopicSealedRetentionSeconds": 0,
    "scalableTopicConsumerSessionTimeoutSeconds": 5,  # on a busy machine less is over at times
}


async def give_back(cluster: TopicCluster, topic: str) -> None:
    """As soon as all have read what it held before its cut-over, and know of that."""
    await eventually(lambda: _is_read(cluster, topic), WAIT_S)
    asked = {"leaveMiddle": "true"}
    await _once_settled(partial(cluster.call, "POST", f"{topic}/give-back", params=asked))


async def _once_settled(change: Callable[[], Awaitable[None]]) -> None:
    """Asks for the change until all know of the one before."""

    async def is_done() -> bool:
        try:
            await change()
        except AssertionError as error:
            if "just now" not in str(error):
                raise
            return False
        return True

    await eventually(is_done, WAIT_S)


def _has_stored(plain: LibrdkafkaWriter, wanted: int) -> bool:
    return sum(map(len, plain.acked.values())) >= wanted


async def _is_read(cluster: TopicCluster, topic: str) -> bool:
    segments = (await cluster.call("GET", topic))["segments"]
    (legacy,) = (each["segmentId"] for each in segments.values() if each["legacy"])
    return await _is_drained(cluster, topic, legacy)


async def _is_drained(cluster: TopicCluster, topic: str, segment: int) -> bool:
    stats = await cluster.call("GET", f"{topic}/stats")
    return all(segment in each["drainedSegments"] for each in stats["subscriptions"].values())


async def _prune(cluster: TopicCluster, topic: str) -> bool:
    """Prunes what came between, once it is read; tells whether that is done."""
    segments = (await cluster.call("GET", topic))["segments"]
    roots = [each for each in segments.values() if not each["parentIds"]]
    if len(segments) > 1 and await _is_drained(cluster, topic, roots[0]["segmentId"]):
        where = roots[0]["hashRange"]
        name = f"{where['start']:04x}-{where['end']:04x}-{roots[0]['segmentId']}"
        await cluster.rest("DELETE", f"/admin/v2/segments/{topic}/{name}")
    return len(segments) == 1
