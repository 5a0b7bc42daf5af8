"""Who writes to a key does not matter: what was acknowledged before the next was sent comes first.

Two clients on two nodes, one of which hears late, a plain client of Kafka and one that does all by
transactions take turns at keys, while segments split, merge and change their buckets.
"""

from __future__ import annotations

import asyncio

import pytest

from anabranch.client import Client
from support.alternation import Alternation, PlainSender, Send
from support.tcp_proxy import TcpProxy
from support.topic_cluster import TopicCluster
from support.waiting import until

_ROUNDS = 3  # each a split, a merge and a rebucket: each of them is heard of late once
_KEYS = 4
_BETWEEN = 4 * _KEYS  # messages


async def test_an_effect_never_comes_before_its_cause_whoever_sent_them(
    cluster: TopicCluster, client: Client, topic: str
) -> None:
    with TcpProxy(int(cluster.nodes[1].service_url().rpartition(":")[2])) as proxy:
        async with Client(f"pulsar://127.0.0.1:{proxy.port}") as late:
            await judged(cluster, client, late, topic, proxy)


async def judged(
    cluster: TopicCluster, near: Client, late: Client, topic: str, proxy: TcpProxy
) -> None:
    first, second = await near.create_producer(topic), await late.create_producer(topic)
    plain = PlainSender(cluster.kafka, lambda: first.layout)
    transacting = await asyncio.to_thread(
        PlainSender, cluster.kafka, lambda: first.layout, f"{cluster.prefix}{topic}"
    )
    senders: list[Send] = [first.send, second.send, plain.send, transacting.send]
    history = Alternation(_KEYS)
    receiving = asyncio.create_task(history.receive(await near.subscribe(topic, "history")))
    sending = asyncio.create_task(history.run(senders))
    try:
        for number in range(_ROUNDS):
            await change(cluster, topic, number, history, proxy)
        sending.cancel()
        await asyncio.wait([sending])
        await until(lambda: receiving.done() or not history.missing())
    finally:
        proxy.let_answers_through()
        for task in (sending, receiving):
            task.cancel()
        plain.close()
        transacting.close()
    for task in (sending, receiving):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert history.turned_when_stored() == []
    assert history.turned_when_delivered() == []


async def change(
    cluster: TopicCluster, topic: str, number: int, history: Alternation, proxy: TcpProxy
) -> None:
    """A split, a merge and a rebucket, with messages before each; of one the late client hears
    when it is over.
    """
    for what in range(3):
        await history.more(_BETWEEN)
        if what == number % 3:
            proxy.hold_answers()
        active = await cluster.active(topic)
        if what == 0:
            await cluster.split(topic, active[0])
        elif what == 1:
            await cluster.merge(topic, *active[-2:])
        else:
            count = {"bucketCount": 5 + number % 2}
            await cluster.call("POST", f"{topic}/rebucket/{active[0]}", params=count)
        proxy.let_answers_through()
