"""A scalable topic without nodes: its layout by hand, its Kafka topics real, its watch on a port.

For tests of the SDK that need each step of a split or merge at a moment of their choosing.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from anabranch.client import Client
from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.hashing import bucket_starts
from anabranch.core.topics.kafka_names import kafka_topic
from anabranch.wire import anabranch_pb2 as pb
from anabranch.wire.anabranch_pb2 import BaseCommand
from anabranch.wire.server.server import Peer, Routes
from support.log_ends import log_end
from support.quiet import QUIET
from support.tcp_proxy import TcpProxy
from support.waiting import WAIT_S
from support.wire import serve


class HandMadeTopic:
    """`prefix`: of Kafka topics; `bootstrap`: Kafka for the test; `advertised`: for its clients.

    It has a `client` of its own.
    """

    def __init__(
        self,
        prefix: str,
        bootstrap: str,
        *,
        advertised: str = "",
        segments: int = 1,
        buckets: int = 4,
    ) -> None:
        self.name = "public/default/orders"
        self._prefix = prefix
        self.layout = SegmentLayout.initial(segments, segments * buckets)
        self.children: tuple[SegmentInfo, ...] = ()
        self.parents: tuple[int, ...] = ()
        self.sealing = False
        self.max_message_bytes = 1_048_588
        self._bootstrap = bootstrap
        self._advertised = advertised or bootstrap
        self._admin = AdminClient({**QUIET, "bootstrap.servers": bootstrap})
        self._watchers: dict[tuple[Peer, int], None] = {}

    async def __aenter__(self) -> Self:
        await self.make(self.layout.active)
        self._server = await serve(self._session)
        self.client = Client(self.url)
        return self

    async def __aexit__(self, *raised: Any) -> None:
        try:
            await self.client.__aexit__(*raised)
        finally:
            await self._server.stop()

    # --- nodes --------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"pulsar://127.0.0.1:{self._server.port}"

    def _session(self, peer: Peer) -> Routes:
        async def lookup(command: BaseCommand) -> None:
            asked = command.scalableTopicLookup
            if asked.topic != f"topic://{self.name}":
                peer.send(
                    pb.CommandScalableTopicUpdate(
                        session_id=asked.session_id,
                        error=pb.ServerError.TopicNotFound,
                        message=f"Scalable topic not found: {asked.topic}",
                    )
                )
                return
            self._watchers[peer, asked.session_id] = None
            peer.send(self.update(asked.session_id))

        async def close(command: BaseCommand) -> None:
            self._watchers.pop((peer, command.scalableTopicClose.session_id), None)

        return {BaseCommand.SCALABLE_TOPIC_LOOKUP: lookup, BaseCommand.SCALABLE_TOPIC_CLOSE: close}

    def update(self, session_id: int) -> pb.CommandScalableTopicUpdate:
        dag = pb.ScalableTopicDAG(
            epoch=self.layout.epoch,
            segments=[self._proto(part) for part in self.layout.segments.values()],
            bootstrap_servers=self._advertised,
            children=[self._proto(part) for part in self.children],
            parents_under_way=self.parents,
            incarnation=1,
            sealing=self.sealing,
            max_message_bytes=self.max_message_bytes,
        )
        return pb.CommandScalableTopicUpdate(session_id=session_id, dag=dag)

    def push(self) -> None:
        for peer, session_id in list(self._watchers):
            peer.send(self.update(session_id))

    def _proto(self, part: SegmentInfo) -> pb.SegmentInfoProto:
        return pb.SegmentInfoProto(
            segment_id=part.segment_id,
            hash_start=part.start,
            hash_end=part.end,
            state=pb.SEALED if part.sealed_at_epoch else pb.ACTIVE,
            parent_ids=part.parent_ids,
            child_ids=part.child_ids,
            created_at_epoch=part.created_at_epoch,
            created_at_ms=part.created_at_ms,
            sealed_at_epoch=part.sealed_at_epoch,
            entry_bucket_splits=bucket_starts(part.buckets),
            kafka_topic=self.kafka_topic(part),
            end_offsets=part.end_offsets,
        )

    def kafka_topic(self, part: SegmentInfo) -> str:
        return kafka_topic(self._prefix, self.name, 1, part)

    # --- the steps of an operation --------------------------------------------------------

    async def make(self, parts: tuple[SegmentInfo, ...]) -> None:
        kept = {"retention.ms": "-1"}  # like a segment's: event times may be as old as they like
        topics = [NewTopic(self.kafka_topic(part), part.buckets, 1, config=kept) for part in parts]
        for future in self._admin.create_topics(topics).values():
            await asyncio.to_thread(future.result, WAIT_S)

    def begin(self, parents: tuple[int, ...], children: tuple[SegmentInfo, ...]) -> None:
        self.parents, self.children = parents, children
        self._next_epoch()

    def start_sealing(self) -> None:
        self.sealing = True
        self._next_epoch()

    async def seal(self) -> dict[int, tuple[int, ...]]:
        """Makes Kafka refuse the parents' appends; returns their end offsets."""
        parts = [self.layout.segments[each] for each in self.parents]
        for part in parts:
            await self.set_limit(part, 0)
        ends = {}
        for part in parts:
            topic = self.kafka_topic(part)
            for bucket in range(part.buckets):
                await asyncio.to_thread(self._await_refusal, topic, bucket)
            ends[part.segment_id] = await asyncio.to_thread(self.ends, part)
        return ends

    def stored(self) -> int:
        """How many records its segments have."""
        return sum(sum(self.ends(part)) for part in self.layout.segments.values())

    async def split_unanswered(self, proxy: TcpProxy) -> dict[int, tuple[int, ...]]:
        """Seals segment 0 for two children while the proxy holds Kafka's answers, which are lost
        then: what was sent meanwhile is in doubt. Returns the end offsets.
        """
        children = self.layout.split_children(0)
        self.begin((0,), children)
        await self.make(children)
        ends = await self.seal()
        proxy.cut()
        proxy.let_answers_through()
        return ends

    async def set_limit(self, part: SegmentInfo, limit: int) -> None:
        entry = ConfigEntry(
            "max.message.bytes", str(limit), incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(
            ConfigResource.Type.TOPIC, self.kafka_topic(part), incremental_configs=[entry]
        )
        for future in self._admin.incremental_alter_configs([resource]).values():
            await asyncio.to_thread(future.result, WAIT_S)

    def commit(self, ends: dict[int, tuple[int, ...]]) -> None:
        epoch = self.layout.epoch + 1
        self.layout = self.layout.replaced(self.parents, self.children, ends, 0)
        self.layout.epoch = epoch
        self.parents, self.children, self.sealing = (), (), False
        self.push()

    async def change(self, parents: tuple[int, ...], children: tuple[SegmentInfo, ...]) -> None:
        """All steps, as a controller goes through them."""
        self.begin(parents, children)
        await self.make(children)
        self.start_sealing()
        self.commit(await self.seal())

    async def split(self, segment_id: int) -> None:
        await self.change((segment_id,), self.layout.split_children(segment_id))

    async def merge(self, first: int, second: int) -> None:
        await self.change((first, second), self.layout.merge_children(first, second))

    def _next_epoch(self) -> None:
        self.layout = SegmentLayout(
            self.layout.epoch + 1, self.layout.next_segment_id, self.layout.segments.values()
        )
        self.push()

    def plain_producer(self) -> Producer:
        """A client of Kafka that knows nothing of scalable topics."""
        return Producer({**QUIET, "bootstrap.servers": self._bootstrap, "linger.ms": 0})

    def _await_refusal(self, topic: str, bucket: int) -> None:
        probe = self.plain_producer()
        codes: list[int] = []

        def done(error: KafkaError | None, _message: Message) -> None:
            codes.append(error.code() if error is not None else 0)

        def refused() -> bool:
            # The time is out of bounds: Kafka would refuse this even if the topic were not sealed.
            probe.produce(topic, b"", partition=bucket, timestamp=2**62, on_delivery=done)
            probe.flush(WAIT_S)
            return codes[-1] == KafkaError.MSG_SIZE_TOO_LARGE

        while not refused():
            pass

    # --- what Kafka has --------------------------------------------------------------------

    def ends(self, part: SegmentInfo) -> tuple[int, ...]:
        with_reader = self._reader()
        try:
            return tuple(
                log_end(with_reader, TopicPartition(self.kafka_topic(part), bucket))
                for bucket in range(part.buckets)
            )
        finally:
            with_reader.close()

    def _reader(self) -> Consumer:
        return Consumer(
            {
                **QUIET,
                "bootstrap.servers": self._bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 10,  # what it asks for next waits behind a fetch
                "log_level": 0,
            }
        )

    def read(self) -> dict[tuple[int, int], list[Message]]:
        """Every message of every segment and bucket, in the order of segment ids."""
        found: dict[tuple[int, int], list[Message]] = {}
        reader = self._reader()
        try:
            for segment_id in sorted(self.layout.segments):
                part = self.layout.segments[segment_id]
                for bucket, end in enumerate(self.ends(part)):
                    found[segment_id, bucket] = self._read(reader, part, bucket, end)
        finally:
            reader.close()
        return found

    def _read(self, reader: Consumer, part: SegmentInfo, bucket: int, end: int) -> list[Message]:
        messages: list[Message] = []
        reader.assign([TopicPartition(self.kafka_topic(part), bucket, 0)])
        deadline = time.monotonic() + WAIT_S
        reached = 0
        while reached < end:  # ends of transactions take offsets, too
            assert time.monotonic() < deadline, f"{len(messages)} of {end} messages are to be read"
            for message in reader.consume(min(10_000, end - reached), 1.0):
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                if error is None:
                    messages.append(message)
                reached = (message.offset() or 0) + (error is None)
        return messages

    def by_key(self) -> dict[bytes, list[bytes]]:
        """The values of each key in the order in which consumers get them."""
        values: dict[bytes, list[bytes]] = {}
        for messages in self.read().values():
            for message in messages:
                values.setdefault(message.key() or b"", []).append(message.value() or b"")
        return values
