"""Who writes to a key does not matter: what was acknowledged before the next was sent comes first.

Two clients on two nodes, one of which hears late, a plain client of Kafka and one that does all by
transactions take turns at keys, while segments split, merge, change their buckets and are prepared.
"""

from __future__ import annotations

from anabranch.client import Client
from support.causality_rounds import judged
from support.topic_cluster import TopicCluster

_ROUNDS = 4  # each a split, a merge, a rebucket and a prepare: each is heard of late once


async def test_an_effect_never_comes_before_its_cause_whoever_sent_them(
    cluster: TopicCluster, client: Client, topic: str
) -> None:
    await judged(cluster, client, topic, _ROUNDS)
