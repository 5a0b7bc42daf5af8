"""Real nodes with scalable topics, for tests of the SDK: made, split and merged through REST."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from anabranch.broker.cli.children import NodeProcess, await_ready, stop_all
from anabranch.channel.embedded.kafka import EmbeddedKafka
from support.processes import free_ports

_ANSWER_S = 20.0


class TopicCluster:
    """Nodes on one Kafka. Any of them takes a request and sends it on."""

    def __init__(self, kafka: EmbeddedKafka, prefix: str, folder: Path, *settings: str) -> None:
        first = free_ports(2)
        self.kafka = kafka.bootstrap_servers
        self.nodes = [
            NodeProcess(
                f"node-{number}",
                first + number,
                self.kafka,
                folder,
                f"topicPrefix={prefix}",
                *settings,
            )
            for number in range(2)
        ]

    @property
    def url(self) -> str:
        addresses = (node.service_url().partition("://")[2] for node in self.nodes)
        return "pulsar://" + ",".join(addresses)

    def node_at(self, service_url: str) -> NodeProcess:
        """The running node that clients reach there."""
        return next(
            node for node in self.nodes if node.is_running and node.service_url() == service_url
        )

    async def call(self, method: str, path: str, **options: Any) -> Any:
        rest = next(node.url for node in self.nodes if node.is_running)
        async with httpx.AsyncClient(
            base_url=rest, timeout=_ANSWER_S, follow_redirects=True
        ) as http:
            answer = await http.request(method, f"/admin/v2/scalable/{path}", **options)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def create(self, topic: str, segments: int = 1) -> None:
        await self.call("PUT", topic, params={"numInitialSegments": segments})

    async def split(self, topic: str, segment_id: int) -> None:
        await self.call("POST", f"{topic}/split/{segment_id}")

    async def merge(self, topic: str, first: int, second: int) -> None:
        await self.call("POST", f"{topic}/merge/{first}/{second}")

    async def active(self, topic: str) -> list[int]:
        layout = await self.call("GET", topic)
        return [s["segmentId"] for s in layout["segments"].values() if s["state"] == "ACTIVE"]


@contextmanager
def topic_cluster(
    kafka: EmbeddedKafka, prefix: str, folder: Path, *settings: str
) -> Iterator[TopicCluster]:
    """Two running nodes."""
    cluster = TopicCluster(kafka, prefix, folder, *settings)
    try:
        for node in cluster.nodes:
            node.start()
        await_ready(cluster.nodes)
        yield cluster
    finally:
        asyncio.run(stopped(cluster.nodes))


async def stopped(nodes: list[NodeProcess]) -> None:
    """All of them, ended."""
    await asyncio.to_thread(stop_all, nodes)
