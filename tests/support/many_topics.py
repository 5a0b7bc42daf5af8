"""A node that serves more topics than anybody would wait for."""

from __future__ import annotations

import urllib.request
from collections.abc import Sequence

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.devkit.nodes import NodeProcess, await_ready
from support.topics_on_log import append_topics
from support.waiting import WAIT_S


def start_with_topics(
    node: NodeProcess, connection: KafkaConnection, prefix: str, names: Sequence[str]
) -> list[SegmentTopic]:
    """Starts a node, alone on its log, that has these topics of one namespace, with one segment
    each; returns the Kafka topics that they lack.
    """
    home = names[0].rpartition("/")[0]
    node.start()
    await_ready([node])
    for number in range(100):  # some fall into each bundle of the namespace
        path = f"/lookup/v2/topic/persistent/{home}/any-{number}"
        urllib.request.urlopen(f"{node.url}{path}", timeout=WAIT_S).close()
    node.kill()
    topics = append_topics(connection, prefix, node.broker_id, names, 1)
    node.start()
    await_ready([node])
    return topics
