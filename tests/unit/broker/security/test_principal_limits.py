"""What one role may use up of a node, by both ports, from wherever it comes."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import BaseCommand, ServerError
from support.memory_cluster import until
from support.secured import answer_to, bearer, secured_node, tokens_alone
from support.tokens import token
from support.wire import error_of

LIST = "/admin/v2/brokers"
LOOKUP = "/lookup/v2/topic/persistent/public/default/orders"
ASKED = pb.CommandLookupTopic(topic="persistent://public/default/orders", request_id=1)


async def test_a_role_that_asks_too_often_is_told_when_to_try_again(tmp_path: Path) -> None:
    async with secured_node(**tokens_alone(tmp_path, maxRequestsPerSecondPerPrincipal=5)) as node:
        ada, bob = bearer("ada"), bearer("bob")
        with capture_logs() as logged:
            found = [await node.ask("GET", LIST, ada) for _ in range(8)]
        codes = [answer.status_code for answer in found]
        assert codes[:5] == [200] * 5
        assert 429 in codes
        late = next(answer for answer in found if answer.status_code == 429)
        assert late.headers["Retry-After"] == "1"
        assert "maxRequestsPerSecondPerPrincipal" in late.text
        lines = [line for line in logged if line["event"] == "authorization.refused"]
        assert [(line["principal"], line["reason"]) for line in lines] == [("ada", "rate")]
        assert node.security.guard.refused["rate"] == codes.count(429)
        # Others, and whoever wants to know whether the node is there, are served.
        assert (await node.ask("GET", LIST, bob)).status_code == 200
        for _ in range(10):
            assert (await node.ask("GET", "/livez")).status_code == 200


async def test_both_ports_count_together_and_open_things_can_be_closed(tmp_path: Path) -> None:
    async with (
        secured_node(**tokens_alone(tmp_path, maxRequestsPerSecondPerPrincipal=5)) as node,
        node.connect("token", token("ada").encode()) as client,
    ):
        await client.welcomed()
        codes = [error_of(await answer_to(client, ASKED)) for _ in range(4)]
        codes += [-1 if (await node.ask("GET", LOOKUP, bearer("ada"))).is_success else 429]
        codes += [error_of(await answer_to(client, ASKED)) for _ in range(4)]
        refused = [each for each in codes if each != -1]
        assert set(refused) <= {ServerError.TooManyRequests, 429}
        assert refused
        closed = await answer_to(client, pb.CommandWatchTopicListClose(request_id=9, watcher_id=9))
        assert closed.type == BaseCommand.SUCCESS


async def test_connections_and_watches_of_a_role_are_counted_together(tmp_path: Path) -> None:
    watch = pb.CommandWatchScalableTopics(namespace="public/default", watch_id=1)
    limits = {"brokerMaxConnectionsPerPrincipal": 2, "brokerMaxWatchesPerPrincipal": 2}

    async with secured_node(**tokens_alone(tmp_path, **limits)) as node:
        shown = token("ada").encode()
        async with node.connect("token", shown) as first:
            await first.welcomed()
            async with node.connect("token", shown) as second:
                await second.welcomed()
                async with node.connect("token", shown) as third:
                    refused = await third.told()
                    assert refused.error.error == ServerError.TooManyRequests
                    assert "brokerMaxConnectionsPerPrincipal" in refused.error.message
                    assert await third.answer() is None
                async with node.connect("token", token("bob").encode()) as other:
                    await other.welcomed()
                for client in (first, second):
                    told = await answer_to(client, watch)
                    assert told.watchScalableTopicsUpdate.HasField("snapshot")
                watch.watch_id = 2
                told = await answer_to(second, watch)
                assert told.watchScalableTopicsUpdate.error == ServerError.TooManyRequests
                assert "brokerMaxWatchesPerPrincipal" in told.watchScalableTopicsUpdate.message
            await until(lambda: node.wire.gate.account.connections == 1)
            async with node.connect("token", shown) as again:
                await again.welcomed()
                told = await answer_to(again, watch)
                assert told.watchScalableTopicsUpdate.HasField("snapshot")
        await until(lambda: node.wire.gate.account.roles == 0)
