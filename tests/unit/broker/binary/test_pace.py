"""Telling very many watches of a change leaves the node its time for heartbeats."""

from __future__ import annotations

import asyncio

from anabranch.broker.binary.forms import ClientSettings
from anabranch.broker.binary.watching import layout_watches
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.commands import envelope
from support.http import PATIENT
from support.memory_cluster import memory_cluster, until

TOPIC = "public/default/orders"
CLIENTS, WATCHES = 20, 100


class Ticking:
    """A clock on which each look takes a millisecond."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


class Reader:
    """A client that takes all that it is sent."""

    is_drained = True

    def __init__(self) -> None:
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.told = 0

    async def drained(self) -> None:
        """At once."""

    def open_watch(self) -> None:
        """As many as it likes."""

    def close_watch(self) -> None:
        """As often as it likes."""

    def send(self, _: object) -> None:
        self.told += 1


async def test_a_change_that_thousands_of_watches_hear_of_is_told_in_slices() -> None:
    """All clients together, between two turns of the event loop: else none would be had."""

    async with memory_cluster(1, **PATIENT) as cluster:
        node = cluster.nodes[0]
        await node.operations.topics.create(TOPIC, 1, {})
        told = ClientSettings("anabranch.", "", 1, 1)
        part = layout_watches(node.operations.topics.watches, told, Ticking())
        readers = [Reader() for _ in range(CLIENTS)]
        for reader in readers:
            routes = part(reader)  # type: ignore[arg-type]  # what of a peer is used
            for number in range(WATCHES):
                asked = pb.CommandScalableTopicLookup(session_id=number, topic=f"topic://{TOPIC}")
                await routes[BaseCommand.SCALABLE_TOPIC_LOOKUP](envelope(asked))

        def count() -> int:
            return sum(reader.told for reader in readers)

        await until(lambda: count() == CLIENTS * WATCHES)
        split = asyncio.create_task(node.operations.topics.split(TOPIC, 0))
        most, before = 0, count()
        while count() < 2 * CLIENTS * WATCHES or not split.done():
            await asyncio.sleep(0)  # one turn
            most, before = max(most, count() - before), count()
        assert 1 <= most <= 6  # of 4,000
        for reader in readers:
            reader.closed.set_result("the test is over")
