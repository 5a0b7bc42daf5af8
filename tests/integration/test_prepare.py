"""A topic that is prepared for another number of segments while it is used, on a real Kafka."""

from __future__ import annotations

from functools import partial

from anabranch.client import Client, Producer
from support.several_brokers import under_load
from support.topic_cluster import TopicCluster
from support.waiting import eventually, until


async def test_a_topic_in_use_is_prepared_up_and_down_and_nothing_is_lost_or_comes_twice(
    cluster: TopicCluster, client: Client, topic: str
) -> None:
    """In order, too: the keys' values are numbered."""

    async def disturb(producer: Producer) -> None:
        def has(count: int) -> bool:
            return len(producer.layout.active) == count

        async def shows(count: int) -> bool:
            return len(await cluster.active(topic)) == count

        for count in (8, 3, 1, 2):
            await cluster.prepare(topic, count)
            await eventually(partial(shows, count))
            await until(partial(has, count))

    await under_load(cluster.kafka, client, topic, disturb, repeats=False)
