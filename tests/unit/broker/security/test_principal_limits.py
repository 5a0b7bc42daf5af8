"""What one role may use up of a node, by both ports, from wherever it comes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import BaseCommand, ServerError
from support.memory_cluster import MemoryCluster, until
from support.secured import SecuredNode, answer_to, bearer, tokens_alone, with_secured
from support.tokens import token
from support.wire import Raw

LIST = "/admin/v2/brokers"
LOOKUP = "/lookup/v2/topic/persistent/public/default/orders"
ASKED = pb.CommandLookupTopic(topic="persistent://public/default/orders", request_id=1)


async def hello(client: Raw) -> BaseCommand:
    answer = await client.answer()
    assert answer is not None
    return answer


def test_a_role_that_asks_too_often_is_told_when_to_try_again(tmp_path: Path) -> None:
    async def test(node: SecuredNode, cluster: MemoryCluster) -> None:
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

    with_secured(test, **tokens_alone(tmp_path, maxRequestsPerSecondPerPrincipal=5))


def test_both_ports_count_together_and_what_is_open_can_always_be_closed(tmp_path: Path) -> None:
    async def test(node: SecuredNode, cluster: MemoryCluster) -> None:
        async with node.connect("token", token("ada").encode()) as client:
            assert (await hello(client)).type == BaseCommand.CONNECTED
            codes: list[int] = []
            for _ in range(4):
                answer = await answer_to(client, ASKED)
                assert answer is not None
                codes.append(_code(answer))
            codes += [0 if (await node.ask("GET", LOOKUP, bearer("ada"))).is_success else 429]
            for _ in range(4):
                answer = await answer_to(client, ASKED)
                assert answer is not None
                codes.append(_code(answer))
            refused = [each for each in codes if each]
            assert set(refused) <= {ServerError.TooManyRequests, 429}
            assert refused
            closed = await answer_to(
                client, pb.CommandWatchTopicListClose(request_id=9, watcher_id=9)
            )
            assert closed is not None
            assert closed.type == BaseCommand.SUCCESS

    with_secured(test, **tokens_alone(tmp_path, maxRequestsPerSecondPerPrincipal=5))


def _code(answer: BaseCommand) -> int:
    payload: Any = answer.error if answer.type == BaseCommand.ERROR else answer.lookupTopicResponse
    return int(payload.error) if payload.HasField("error") else 0


def test_connections_and_watches_of_a_role_are_counted_wherever_they_come_from(
    tmp_path: Path,
) -> None:
    watch = pb.CommandWatchScalableTopics(namespace="public/default", watch_id=1)
    limits = {"brokerMaxConnectionsPerPrincipal": 2, "brokerMaxWatchesPerPrincipal": 2}

    async def test(node: SecuredNode, cluster: MemoryCluster) -> None:
        shown = token("ada").encode()
        async with node.connect("token", shown) as first:
            assert (await hello(first)).type == BaseCommand.CONNECTED
            async with node.connect("token", shown) as second:
                assert (await hello(second)).type == BaseCommand.CONNECTED
                async with node.connect("token", shown) as third:
                    refused = await hello(third)
                    assert refused.error.error == ServerError.TooManyRequests
                    assert "brokerMaxConnectionsPerPrincipal" in refused.error.message
                    assert await third.answer() is None
                async with node.connect("token", token("bob").encode()) as other:
                    assert (await hello(other)).type == BaseCommand.CONNECTED
                for client in (first, second):
                    told = await answer_to(client, watch)
                    assert told is not None
                    assert told.watchScalableTopicsUpdate.HasField("snapshot")
                watch.watch_id = 2
                told = await answer_to(second, watch)
                assert told is not None
                assert told.watchScalableTopicsUpdate.error == ServerError.TooManyRequests
                assert "brokerMaxWatchesPerPrincipal" in told.watchScalableTopicsUpdate.message
            await until(lambda: node.wire.gate.account.connections == 1)
            async with node.connect("token", shown) as again:
                assert (await hello(again)).type == BaseCommand.CONNECTED
                told = await answer_to(again, watch)
                assert told is not None
                assert told.watchScalableTopicsUpdate.HasField("snapshot")
        await until(lambda: node.wire.gate.account.roles == 0)

    with_secured(test, **tokens_alone(tmp_path, **limits))
