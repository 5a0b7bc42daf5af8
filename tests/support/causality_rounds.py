"""Four senders of different kinds take turns at keys, while segments are replaced again and again.

Two clients of the SDK on two nodes, one of which hears late, a plain client of Kafka and one that
does all by transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from anabranch.client import Client, Producer
from support.alternation import Alternation, PlainSender, Send
from support.leader_moves import LeaderMoves
from support.tcp_proxy import TcpProxy
from support.topic_cluster import TopicCluster
from support.waiting import until

_KEYS = 4
_BETWEEN = 4 * _KEYS  # messages
_PLAIN = 2  # its place among the senders
_PREPARED = (8, 3, 1, 5)  # segments, at the end of a round


async def judged(
    cluster: TopicCluster,
    near: Client,
    topic: str,
    rounds: int,
    moves: LeaderMoves | None = None,
    tell: Callable[[int, int], None] = lambda _number, _sent: None,
) -> None:
    """Fails if an effect comes before its cause, or is stored twice.

    Each round is a split, a merge, a rebucket and a prepare. With `moves`, Kafka's leaders change
    in the middle of each of them. `tell` hears after each round how many messages there are.
    """
    with TcpProxy(int(cluster.nodes[1].service_url().rpartition(":")[2])) as proxy:
        async with Client(f"pulsar://127.0.0.1:{proxy.port}") as late:
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
                for number in range(rounds):
                    await _changed(cluster, first, number, history, proxy, moves)
                    tell(number, history.sent)
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
    assert history.stored_twice(but_of=() if moves is None else (_PLAIN,)) == []
    assert history.turned_when_stored() == []
    assert history.turned_when_delivered() == []


async def _changed(
    cluster: TopicCluster,
    producer: Producer,
    number: int,
    history: Alternation,
    proxy: TcpProxy,
    moves: LeaderMoves | None,
) -> None:
    """A split, a merge, a rebucket and a prepare, with messages before each; of one the late client
    hears when it is over.
    """
    topic = producer.layout.topic
    for what in range(4):
        await history.more(_BETWEEN)
        if what == number % 4:
            proxy.hold_answers()
        active = await cluster.active(topic)
        if what == 0:
            change, parents = cluster.split(topic, active[0]), active[:1]
        elif what == 1:
            change, parents = cluster.merge(topic, *active[-2:]), active[-2:]
        elif what == 3:
            change, parents = cluster.prepare(topic, _PREPARED[number % 4]), active
        else:
            count = {"bucketCount": 5 + number % 2}
            path = f"{topic}/rebucket/{active[0]}"
            change, parents = cluster.call("POST", path, params=count), active[:1]
        if moves is None:
            await change
        else:
            await _with_new_leaders(change, producer, parents, moves)
        proxy.let_answers_through()


async def _with_new_leaders(
    change: Coroutine[Any, Any, Any], producer: Producer, parents: list[int], moves: LeaderMoves
) -> None:
    """The leaders of the parents' partitions change once the producer hears of the sealing."""
    await until(lambda: all(each in producer.layout.segments for each in parents))
    topics = [producer.layout.segments[each].kafka_topic for each in parents]
    await asyncio.to_thread(moves.prepare, topics)
    changing = asyncio.create_task(change)
    await until(lambda: producer.layout.sealing or all(map(producer.layout.is_sealed, parents)))
    await asyncio.to_thread(moves.go)
    await changing
