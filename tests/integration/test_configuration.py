"""Settings that change while nodes run, on a real Kafka."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from anabranch.broker.errors import PreconditionError
from anabranch.broker.node import Node
from anabranch.core.names import Namespace
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.kafka_cluster import kafka_cluster

pytestmark = pytest.mark.integration

BUNDLES = "defaultNumberOfNamespaceBundles"


async def bundles_of_new(node: Node, home: str) -> int:
    """How many a namespace has that this node makes and is told none for."""
    await node.operations.tenancy.create_namespace(Namespace(home))
    return len(node.operations.bundles(Namespace(home)))


def test_what_is_set_at_one_node_all_go_by_and_so_do_those_that_start_later(
    kafka: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    async def body() -> None:
        async with kafka_cluster(kafka, topic_prefix, tmp_path, 2) as nodes:
            first, second = nodes.nodes
            assert await bundles_of_new(second, "public/before") == 4
            await first.operations.configuration.override(BUNDLES, "7")
            await nodes.caught_up()
            assert await bundles_of_new(second, "public/after") == 7
            with pytest.raises(PreconditionError, match="Invalid dynamic-config value"):
                await second.operations.configuration.override(BUNDLES, "0")

            settings = second.settings
            await nodes.crash(second)
            again = await nodes.start(settings)  # by what its directory has, and the log
            fresh = await nodes.start()  # by the log alone
            for number, node in enumerate((again, fresh)):
                assert node.settings.default_number_of_namespace_bundles == 4, "its own stays"
                assert await bundles_of_new(node, f"public/again-{number}") == 7

            await fresh.operations.configuration.withdraw(BUNDLES)
            await nodes.caught_up()
            for number, node in enumerate(nodes.nodes):
                current = node.operations.configuration.current
                assert current.now == current.own
                assert await bundles_of_new(node, f"public/own-{number}") == 4

    asyncio.run(body())
