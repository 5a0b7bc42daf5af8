"""Lists of topics and their watches by the binary protocol, on real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from anabranch.broker.binary import listing
from anabranch.broker.binary.sessions import sessions
from anabranch.core.names import parse_namespace
from anabranch.core.topic_lists.sorted_names import topics_hash
from anabranch.core.topic_lists.topic_list import JOURNAL_MAX, TopicList
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.client import ClientConnection, connect
from anabranch.wire.connection import ConnectionLimits
from anabranch.wire.errors import RefusedError
from anabranch.wire.limiter import LimitType
from anabranch.wire.server import Peer, WireServer
from support import steady
from support.http import PATIENT
from support.memory_cluster import WAIT_S, MemoryCluster, MemoryNode, memory_cluster, until
from support.wire import HOST, connected, raw, serving

HOME = "public/default"
EMPTY = topics_hash(())


def full(*names: str) -> list[str]:
    return [f"topic://{HOME}/{name}" for name in names]


class Follower:
    """A client that keeps the lists that its watches tell it."""

    def __init__(self) -> None:
        self.pushed: list[BaseCommand] = []
        self.lists: dict[tuple[str, int], set[str]] = {}
        self.hashes: dict[int, str] = {}
        self.errors: dict[int, pb.CommandWatchScalableTopicsUpdate] = {}
        self.connection: ClientConnection
        self.server: WireServer

    @property
    def peer(self) -> Peer:
        """The node's side of its connection."""
        (peer,) = self.server.peers
        return peer

    def take(self, command: BaseCommand) -> None:
        self.pushed.append(command)
        if command.type == BaseCommand.WATCH_TOPIC_UPDATE:
            told = command.watchTopicUpdate
            known = self.lists["list", told.watcher_id]
            known.difference_update(told.deleted_topics)
            assert not known & set(told.new_topics)
            known.update(told.new_topics)
            assert topics_hash(known) == told.topics_hash
        elif command.type == BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE:
            self._take_scalable(command.watchScalableTopicsUpdate)

    def _take_scalable(self, told: pb.CommandWatchScalableTopicsUpdate) -> None:
        if told.HasField("error"):
            self.errors[told.watch_id] = told
        elif told.HasField("snapshot"):
            self.lists["scalable", told.watch_id] = set(told.snapshot.topics)
        else:
            known = self.lists.setdefault(("scalable", told.watch_id), set())
            known.difference_update(told.diff.removed)
            known.update(told.diff.added)

    async def list(self, **fields: object) -> pb.CommandGetTopicsOfNamespaceResponse:
        asked = pb.CommandGetTopicsOfNamespace(**{"namespace": HOME, **fields})  # type: ignore[arg-type]
        answer = await self.connection.request(asked, WAIT_S)
        return answer.getTopicsOfNamespaceResponse

    async def watch(
        self, number: int = 1, pattern: str = ".*", known: str = "", namespace: str = HOME
    ) -> pb.CommandWatchTopicListSuccess:
        asked = pb.CommandWatchTopicList(
            watcher_id=number, namespace=namespace, topics_pattern=pattern, topics_hash=known
        )
        answer = (await self.connection.request(asked, WAIT_S)).watchTopicListSuccess
        if not known or known != answer.topics_hash:
            self.lists["list", number] = set(answer.topic)
        return answer

    def watch_scalable(self, number: int = 1, known: str = "", **filters: str) -> None:
        self.connection.send(
            pb.CommandWatchScalableTopics(
                watch_id=number,
                namespace=HOME,
                property_filters=[pb.KeyValue(key=k, value=v) for k, v in filters.items()],
                current_hash=known,
            )
        )

    def has(self, kind: str, *names: str, number: int = 1) -> bool:
        return self.lists.get((kind, number)) == set(full(*names))


@asynccontextmanager
async def follower_of(
    node: MemoryNode, limits: ConnectionLimits | None = None
) -> AsyncIterator[Follower]:
    follower = Follower()
    async with (
        serving(sessions(node.operations, node.settings), limits) as server,
        connected(server, follower.take) as connection,
    ):
        follower.connection, follower.server = connection, server
        yield follower


def run(
    test: Callable[[MemoryCluster], Awaitable[None]], count: int = 1, **settings: object
) -> None:
    async def body() -> None:
        async with memory_cluster(count, **{**PATIENT, **settings}) as cluster:
            await test(cluster)

    steady.run(body())


async def make(node: MemoryNode, *names: str, **properties: str) -> None:
    for name in names:
        await node.operations.topics.create(f"{HOME}/{name}", 1, properties)


async def drop(node: MemoryNode, *names: str) -> None:
    for name in names:
        await node.operations.topics.delete(f"{HOME}/{name}")


def held(node: MemoryNode) -> int:
    limiter = node.operations.topic_list_limiter
    return sum(limiter.side(each).acquired for each in LimitType)


# --- lists ------------------------------------------------------------------------------


def test_a_node_lists_the_open_topics_with_pulsars_hash() -> None:
    async def test(cluster: MemoryCluster) -> None:
        await make(cluster.nodes[0], "b", "a", "c")
        await until(lambda: all(node.view.topic(f"{HOME}/c") for node in cluster.nodes))
        for node in cluster.nodes:
            async with follower_of(node) as client:
                answer = await client.list()
                assert sorted(answer.topics) == full("a", "b", "c")
                assert answer.topics_hash == topics_hash(full("a", "b", "c"))
                assert (answer.filtered, answer.changed) == (False, True)
                again = await client.list(topics_hash=answer.topics_hash)
                assert (list(again.topics), again.changed) == ([], False)
                assert again.topics_hash == answer.topics_hash
            assert held(node) == 0

    run(test)


def test_any_node_lists_and_tells_what_another_one_has_made() -> None:
    async def test(cluster: MemoryCluster) -> None:
        access = cluster.nodes[0].operations.topics.access
        located = await access.find_controller(f"{HOME}/a")
        owner = next(node for node in cluster.nodes if node.id == located.broker)
        other = next(node for node in cluster.nodes if node is not owner)
        async with follower_of(other) as client:
            await client.watch()
            await make(owner, "a")
            await until(lambda: client.has("list", "a"))
            assert list((await client.list()).topics) == full("a")

    run(test, 2)


def test_a_list_follows_what_is_made_and_deleted() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        async with follower_of(node) as client:
            assert (await client.list()).topics_hash == EMPTY
            await make(node, "a", "b")
            assert list((await client.list()).topics) == full("a", "b")
            await drop(node, "a")
            assert list((await client.list()).topics) == full("b")

    run(test)


def test_a_topic_that_is_being_made_or_deleted_is_not_listed() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        await make(node, "a", "b")
        async with follower_of(node) as client:
            await client.watch()
            cluster.segments.hold.clear()
            creating = asyncio.create_task(make(node, "c"))
            deleting = asyncio.create_task(drop(node, "b"))
            await until(lambda: client.has("list", "a"))
            await until(lambda: node.view.topic(f"{HOME}/c") is not None)
            assert list((await client.list()).topics) == full("a")
            cluster.segments.hold.set()
            await asyncio.gather(creating, deleting)
            await until(lambda: client.has("list", "a", "c"))

    run(test)


def test_a_pattern_selects_whole_names_without_their_domain() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        await make(node, "orders-1", "orders-2", "invoices", "my-orders-1")

        async def listed(pattern: str) -> list[str]:
            answer = await client.list(topics_pattern=pattern)
            assert answer.filtered
            assert answer.topics_hash == topics_hash(answer.topics)
            return sorted(name.rpartition("/")[2] for name in answer.topics)

        async with follower_of(node) as client:
            assert await listed("public/default/orders-.*") == ["orders-1", "orders-2"]
            assert await listed("topic://public/default/orders-.*") == ["orders-1", "orders-2"]
            assert await listed("persistent://public/default/orders-1") == ["orders-1"]
            assert await listed("orders-.*") == []
            assert len(await listed(".*")) == 4
            assert await listed(".*/(invoices|orders-2)") == ["invoices", "orders-2"]

    run(test)


def test_there_are_no_non_persistent_topics_and_none_of_a_namespace_that_is_not_there() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        await make(node, "a")
        async with follower_of(node) as client:
            mode = pb.CommandGetTopicsOfNamespace.NON_PERSISTENT
            none = await client.list(mode=mode)
            assert (list(none.topics), none.topics_hash, none.changed) == ([], EMPTY, True)
            assert not (await client.list(mode=mode, topics_hash=EMPTY)).changed
            assert len((await client.list(mode=pb.CommandGetTopicsOfNamespace.ALL)).topics) == 1
            gone = await client.list(namespace="public/none")
            assert (list(gone.topics), gone.topics_hash) == ([], EMPTY)

    run(test)


@pytest.mark.parametrize(
    ("fields", "code", "word"),
    [
        ({"namespace": "garbage"}, pb.ServerError.InvalidTopicName, "garbage"),
        ({"namespace": "a/b/c"}, pb.ServerError.InvalidTopicName, "a/b/c"),
        ({"namespace": "../.."}, pb.ServerError.InvalidTopicName, ".."),
        ({"namespace": "x" * 100_000}, pb.ServerError.InvalidTopicName, "tenant/namespace"),
        ({"topics_pattern": "("}, pb.ServerError.NotAllowedError, "'('"),
        ({"topics_pattern": ""}, pb.ServerError.NotAllowedError, "empty"),
        ({"topics_pattern": "(?=a)a"}, pb.ServerError.NotAllowedError, "(?=a)a"),
        ({"topics_pattern": "x" * 1_000_000}, pb.ServerError.NotAllowedError, "1000000 char"),
        ({"topics_pattern": "(.{0,300}x){3}"}, pb.ServerError.NotAllowedError, "{0,300}"),
        ({"topics_pattern": "http://a"}, pb.ServerError.NotAllowedError, "http://a"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name_and_the_connection_goes_on(
    fields: dict[str, str], code: pb.ServerError, word: str
) -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        async with follower_of(node) as client:
            with pytest.raises(RefusedError) as refused:
                await client.list(**fields)
            assert refused.value.code == code
            assert word in refused.value.reason
            assert (await client.list()).topics_hash == EMPTY
        assert held(node) == 0

    run(test)


def test_patterns_that_hang_others_cost_a_moment() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        await make(node, "a" * 200 + "-")
        async with follower_of(node) as client:
            for pattern in (
                "(a+)+b",
                "(a|a)*b",
                "(.*a){60}b",
                "((a*)*)*b",
                "public/default/(a?){99}a{99}",
            ):
                answer = await client.list(topics_pattern=pattern)
                assert answer.filtered
                assert list(answer.topics) == []

    run(test)


def test_an_unknown_mode_is_the_default() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        await make(node, "a")
        async with (
            serving(sessions(node.operations, node.settings)) as server,
            raw(server.port) as client,
        ):
            await client.handshake()
            asked = pb.CommandGetTopicsOfNamespace(request_id=7, namespace=HOME)
            command = BaseCommand(
                type=BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=asked
            )
            payload = asked.SerializeToString() + b"\x18\x63"  # mode = 99
            data = BaseCommand(type=command.type).SerializeToString()
            client.send(data + b"\x82\x02" + bytes([len(payload)]) + payload)
            answer = await client.answer()
            assert answer is not None
            assert answer.getTopicsOfNamespaceResponse.request_id == 7
            assert list(answer.getTopicsOfNamespaceResponse.topics) == full("a")

    run(test)


def test_a_foreign_client_is_told_that_lists_may_be_watched() -> None:
    async def test(cluster: MemoryCluster) -> None:
        async with follower_of(cluster.nodes[0]) as client:
            flags = client.connection.server.feature_flags
            assert flags.supports_topic_watchers
            assert flags.supports_topic_watcher_reconcile
            assert client.connection.server.max_message_size == 64 << 20

    run(test)


# --- watches ----------------------------------------------------------------------------


def test_a_watch_tells_the_list_and_then_every_change_with_its_hash() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        await make(node, "a", "orders-1")
        async with follower_of(node) as client:
            await client.watch(1)
            first = await client.watch(2, "public/default/orders-.*")
            assert list(first.topic) == full("orders-1")
            await make(node, "orders-2", "b")
            await drop(node, "a", "orders-1")
            await until(lambda: client.has("list", "b", "orders-2"))
            await until(lambda: client.has("list", "orders-2", number=2))

    run(test)


def test_a_watch_that_is_opened_again_with_its_hash_is_sent_no_names() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        await make(node, "a")
        async with follower_of(node) as client:
            first = await client.watch()
            again = await client.watch(known=first.topics_hash)
            assert (list(again.topic), again.topics_hash) == ([], first.topics_hash)
            assert node.operations.topics.lists.watch_count == 1
            client.watch_scalable(known=first.topics_hash)
            await until(lambda: ("scalable", 1) in client.lists)
            assert client.lists["scalable", 1] == set()  # a difference without names
            await make(node, "b")
            await until(lambda: client.has("scalable", "b"))
            await until(lambda: client.has("list", "a", "b"))

    run(test)


def test_property_filters_follow_properties_that_change() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        topics = node.operations.topics
        await make(node, "a", team="shop", tier="1")
        await make(node, "b", team="shop")
        await make(node, "c", team="bank")
        async with follower_of(node) as client:
            client.watch_scalable(1, team="shop")
            client.watch_scalable(2, team="shop", tier="1")
            client.watch_scalable(3)
            await until(lambda: client.has("scalable", "a", "b"))
            await until(lambda: client.has("scalable", "a", number=2))
            await until(lambda: client.has("scalable", "a", "b", "c", number=3))
            await topics.change_properties(f"{HOME}/c", lambda _: {"team": "shop", "tier": "1"})
            await topics.change_properties(f"{HOME}/a", lambda _: {})
            await until(lambda: client.has("scalable", "b", "c"))
            await until(lambda: client.has("scalable", "c", number=2))
            assert client.has("scalable", "a", "b", "c", number=3)

    run(test)


def test_watches_of_either_kind_are_refused_in_their_own_way() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        async with follower_of(node) as client:
            with pytest.raises(RefusedError, match=r"'\['") as refused:
                await client.watch(1, "[")
            assert refused.value.code == pb.ServerError.NotAllowedError
            client.watch_scalable(5, **{f"p{number}": "v" for number in range(65)})
            await until(lambda: 5 in client.errors)
            assert "65 property filters" in client.errors[5].message
            client.connection.send(pb.CommandWatchScalableTopics(watch_id=6, namespace="/"))
            await until(lambda: 6 in client.errors)
            assert client.errors[6].error == pb.ServerError.InvalidTopicName
            assert node.operations.topics.lists.watch_count == 0
        assert held(node) == 0

    run(test)


def test_a_closed_watch_and_a_closed_connection_are_told_nothing_more() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        lists = node.operations.topics.lists
        async with follower_of(node) as client:
            await client.watch(1)
            await client.watch(2)
            client.watch_scalable(1)
            await until(lambda: lists.watch_count == 3)
            closed = await client.connection.request(
                pb.CommandWatchTopicListClose(watcher_id=1), WAIT_S
            )
            assert closed.type == BaseCommand.SUCCESS
            client.connection.send(pb.CommandWatchScalableTopicsClose(watch_id=1))
            await until(lambda: lists.watch_count == 1)
            await make(node, "a")
            await until(lambda: client.has("list", "a", number=2))
            assert client.has("list")
            assert client.lists["scalable", 1] == set()
        await until(lambda: lists.watch_count == 0)
        assert held(node) == 0

    run(test)


def test_a_watch_too_many_is_refused_and_those_before_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listing, "WATCHES_MAX", 20)

    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        async with follower_of(node) as client:
            for number in range(20):
                client.watch_scalable(number)
            await until(lambda: len(client.lists) == 20)
            with pytest.raises(RefusedError, match="20 watches"):
                await client.watch(20)
            client.watch_scalable(3)  # of the same number: it begins anew
            client.watch_scalable(21)
            await until(lambda: 21 in client.errors)
            assert client.errors[21].error == pb.ServerError.TooManyRequests
            await make(node, "a")
            await until(lambda: all(client.has("scalable", "a", number=n) for n in range(20)))

    run(test)


def test_what_changes_while_a_client_does_not_read_is_told_as_one_difference() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        async with follower_of(node, ConnectionLimits(unread_s_max=600.0)) as client:
            await client.watch()
            await make(node, "gone")
            await until(lambda: client.has("list", "gone"))
            peer = client.peer
            peer._drained.clear()  # as of one whose socket is full
            await make(node, "a", "b")
            await drop(node, "a", "gone")
            told = len(client.pushed)
            peer._drained.set()
            await until(lambda: client.has("list", "b"))
            assert len(client.pushed) == told + 1

    run(test)


def test_a_watch_that_is_too_far_behind_begins_anew() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        await make(node, "a")
        lists = node.operations.topics.lists
        async with follower_of(node, ConnectionLimits(unread_s_max=600.0)) as client:
            client.watch_scalable()
            await until(lambda: client.has("scalable", "a"))
            peer = client.peer
            peer._drained.clear()
            kept = await lists.of(parse_namespace(HOME))
            for number in range(JOURNAL_MAX + 2):
                kept.list.note("topic://public/default/flicker", number % 2 == 0)
            kept.wake()
            await asyncio.sleep(0)
            peer._drained.set()
            await until(lambda: sum(_is_snapshot(each) for each in client.pushed) == 2)
            assert client.has("scalable", "a")

    run(test)


def test_a_view_that_is_built_anew_tells_its_own_list() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        await make(node, "a", "b")
        async with follower_of(node) as client:
            client.watch_scalable()
            await until(lambda: client.has("scalable", "a", "b"))
            fresh = type(node.view)()
            for entry in cluster.entries:
                fresh.read_batch([entry])
            fresh.apply([(f"topic:{HOME}/b", None)])
            node.view = fresh
            node.runtime.replaced(fresh)
            await until(lambda: client.has("scalable", "a"))

    run(test)


def _is_snapshot(command: BaseCommand) -> bool:
    return command.watchScalableTopicsUpdate.HasField("snapshot")


# --- memory -----------------------------------------------------------------------------

LIMITS = {
    "maxTopicListInFlightHeapMemSizeMB": 8,
    "maxTopicListInFlightDirectMemSizeMB": 8,
    "maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis": 2_000,
}
MANY = full(*(f"orders-of-the-customers-in-region-{number:07d}" for number in range(90_000)))


async def many_topics(node: MemoryNode) -> None:
    """As if the log had them: making so many would measure the making."""
    kept = await node.operations.topics.lists.of(parse_namespace(HOME))
    kept.list = TopicList(MANY)


def test_a_list_larger_than_any_other_frame_reaches_the_client() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        await many_topics(node)
        async with follower_of(node) as client:
            answer = await client.list()
            assert answer.ByteSize() > 5 << 20
            assert list(answer.topics) == MANY
            client.watch_scalable()
            await until(lambda: client.lists.get(("scalable", 1)) == set(MANY))
            assert set((await client.watch()).topic) == set(MANY)
        await until(lambda: held(node) == 0)

    run(test)


def test_a_list_that_fits_no_frame_is_refused_with_a_remedy() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        await many_topics(node)
        async with follower_of(node, ConnectionLimits(list_bytes_max=1 << 20)) as client:
            with pytest.raises(RefusedError, match="by REST"):
                await client.list()
            assert (await client.list(topics_pattern="none")).topics_hash == EMPTY
        assert held(node) == 0

    run(test)


def test_who_does_not_read_holds_nobody_up_and_is_disconnected() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        await many_topics(node)
        routes = sessions(node.operations, node.settings)
        async with serving(routes, ConnectionLimits(unread_s_max=3.0)) as server:
            deaf = []
            for _ in range(4):
                connection = await connect(HOST, server.port, timeout_s=WAIT_S)
                connection.send(pb.CommandGetTopicsOfNamespace(request_id=1, namespace=HOME))
                connection.hold()
                deaf.append(connection)
            # The memory holds one list: it is shared with who reads.
            side = node.operations.topic_list_limiter.side(LimitType.DIRECT_MEMORY)
            await until(lambda: side.acquired > 5 << 20)
            assert side.acquired < 8 << 20
            async with connected(server) as client:
                asked = pb.CommandGetTopicsOfNamespace(namespace=HOME)
                for _ in range(3):
                    answer = await client.request(asked, WAIT_S)
                    assert len(answer.getTopicsOfNamespaceResponse.topics) == len(MANY)
            await until(lambda: not server.peers)
            assert held(node) == 0
            for connection in deaf:
                connection.abort("the test is over")
                await asyncio.wait([connection.closed])

    run(test, **LIMITS)


def test_without_memory_a_request_is_refused_by_the_setting_that_helps() -> None:
    async def test(cluster: MemoryCluster) -> None:
        node = cluster.nodes[0]
        await make(node, "a")
        limiter = node.operations.topic_list_limiter
        async with follower_of(node) as client:
            client.watch_scalable()
            await until(lambda: client.has("scalable", "a"))
            async with limiter.held(8 << 20, LimitType.DIRECT_MEMORY):
                with pytest.raises(RefusedError, match="DirectMemSize") as refused:
                    await client.list()
                assert refused.value.code == pb.ServerError.TooManyRequests
                with pytest.raises(RefusedError, match="DirectMemSize"):
                    await client.watch()
                client.watch_scalable(2)
                await until(lambda: 2 in client.errors)
                assert client.errors[2].error == pb.ServerError.TooManyRequests
                await make(node, "b")
            # A watch is told once there is memory.
            await until(lambda: client.has("scalable", "a", "b"))
            assert (await client.list()).changed
            assert node.operations.topics.lists.watch_count == 1
        assert held(node) == 0

    run(test, **LIMITS)
