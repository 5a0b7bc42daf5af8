"""One report keeps the sessions of several consumers of a connection, and of nobody else."""

from __future__ import annotations

import asyncio

from anabranch.broker.binary.sessions import sessions
from anabranch.wire import anabranch_pb2 as pb
from support.binary import subscribe
from support.http import PATIENT
from support.memory_cluster import memory_cluster, until
from support.wire import WAIT_S, connected, serving

NAMES = ("public/default/orders", "public/default/bills")


async def test_a_report_keeps_the_consumers_that_it_names_and_says_whom() -> None:
    settings = {**PATIENT, "brokerServicePort": 7000}
    settings["scalableTopicConsumerSessionTimeoutSeconds"] = 2
    async with memory_cluster(1, **settings) as cluster:
        node = cluster.nodes[0]
        for name in NAMES:
            await node.operations.topics.access.find_controller(name)
            await node.operations.topics.create(name, 1, {})
        routes = sessions(node.operations, node.settings)
        async with serving(routes) as server, connected(server) as connection:
            for number, name in enumerate(NAMES, 1):
                await connection.request(subscribe(name, number), WAIT_S)
            known = node.operations.topics.access.service.consumers
            for _ in range(25):  # longer than a silent consumer is kept
                report = pb.CommandScalableConsumerReport(consumer_id=1, also_kept=[2, 9])
                answer = await connection.request(report, WAIT_S)
                assert list(answer.success.kept) == [2]
                await asyncio.sleep(0.1)
            waiting = pb.CommandScalableConsumerReport(consumer_id=2, dead_letters_waiting=3)
            await connection.request(waiting, WAIT_S)
            shown = node.operations.topics.consumers.dead_letters_waiting
            assert shown() == {(NAMES[1], "billing"): 3}
            await connection.request(pb.CommandScalableConsumerReport(consumer_id=2), WAIT_S)
            assert shown() == {}
            assert len(known) == len(NAMES)
            await until(lambda: not known)  # nobody reports any more
