"""The way to Kafka and back: bare, and with a proposal's verdict at its end."""

from __future__ import annotations

import secrets
import statistics
import time
from pathlib import Path

from confluent_kafka import TopicPartition

from anabranch.broker.logging import configure_logging
from anabranch.broker.node.node import Node
from anabranch.broker.settings import load_settings
from anabranch.channel.codec import encode_record
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.log.entries import append_record
from anabranch.channel.log.kafka_log import APPENDS_UNDER_WAY, KafkaLogReader, KafkaLogWriter
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import (
    Cause,
    ClusterSettings,
    PolicyOp,
    SessionChange,
    SessionOp,
    TenantChange,
)
from anabranch.core.log.verdicts import Verdict
from anabranch.devkit import ports
from anabranch.projections.view import View
from bench.figure import Measured, spread
from bench.place import Place

_COUNT = 1_500
_WARM = 200
_BROKER = "127.0.0.1:8080"
_DEADLINE_S = 30.0


def bare_ms(place: Place, count: int = _COUNT) -> list[float]:
    """A value of a record's size, append to consume; one in flight, the clients tuned alike."""
    topics = place.topics()
    connection = place.connection
    producer = connection.producer(max_in_flight_requests_per_connection=APPENDS_UNDER_WAY)
    consumer = connection.consumer(isolation_level="read_uncommitted")
    consumer.assign([TopicPartition(topics.wal, 0, 0)])
    value = encode_record(_update(1))
    took = []
    for _ in range(count + _WARM):
        began = time.perf_counter()
        producer.produce(topics.wal, value, b"tenant:public", 0)
        while (message := consumer.poll(_DEADLINE_S)) is None or message.error():
            if time.perf_counter() - began > _DEADLINE_S:
                raise RuntimeError("Kafka does not answer")
        took.append((time.perf_counter() - began) * 1000)
        producer.poll(0)
    producer.flush(_DEADLINE_S)
    consumer.close()
    return took[_WARM:]


def _update(version: int) -> TenantChange:
    return TenantChange(
        secrets.token_hex(16),
        "public",
        PolicyOp.UPDATE,
        version,
        _BROKER,
        1,
        (),
        ("standalone",),
        Cause.OPERATOR,
    )


def _folded_ms(place: Place) -> list[float]:
    """The same with writer, reader and view, in one thread: what the channel itself costs."""
    topics = place.topics()
    writer = KafkaLogWriter(place.connection, topics.wal)
    reader = KafkaLogReader(place.connection, topics.wal, 0)
    settings = ClusterSettings("c", "standalone", 1, _BROKER, 500, 4_000, 6_000, 4)
    opened = SessionChange("s", _BROKER, SessionOp.OPEN, 1, _BROKER, 0)
    took = []
    with View.open(place.folder / f"view-{place.number()}") as view:
        for number in range(_COUNT + _WARM + 2):
            record = (settings, opened)[number] if number < 2 else _update(number)
            began = time.perf_counter()
            append_record(writer, record, lambda _: None)
            folded: list[Folded] = []
            while not folded:
                folded = view.read_batch(reader.poll(1_000, _DEADLINE_S))
            took.append((time.perf_counter() - began) * 1000)
            if folded[0].outcome.verdict is not Verdict.ACCEPTED:
                raise RuntimeError(f"{record} was rejected: {folded[0].outcome.verdict.name}")
            writer.serve(0)
    writer.close()
    reader.close()
    return took[_WARM + 2 :]


async def _node_ms(connection: KafkaConnection, folder: Path, prefix: str) -> list[float]:
    """And in a whole node: event loop, threads, metrics, everybody who waits."""
    port = ports.free_port("127.0.0.1")
    named = {
        "bootstrapServers": connection.bootstrap_servers,
        "topicPrefix": prefix,
        "replicationFactor": 1,
        "minInsyncReplicas": 1,
        "advertisedAddress": "127.0.0.1",
        "webServicePort": port,
        "dataDir": str(folder),
        "logLevel": "warning",
    }
    settings = load_settings(None, {}, named)
    configure_logging(settings)
    node = Node(settings)
    await node.start()
    took = []
    try:
        runtime = node.runtime
        actor = runtime.core.actor()
        for _ in range(_COUNT + _WARM):
            before = runtime.view.tenant("public")
            record = TenantChange(
                runtime.proposals.new_id(),
                "public",
                PolicyOp.UPDATE,
                (before.version if before else 0) + 1,
                actor.broker,
                actor.session,
                (),
                ("standalone",),
                Cause.OPERATOR,
            )
            began = time.perf_counter()
            deadline = runtime.proposals.deadline(_DEADLINE_S)
            entry = await runtime.proposals.propose(record, deadline)
            took.append((time.perf_counter() - began) * 1000)
            if entry.outcome.verdict is not Verdict.ACCEPTED:
                raise RuntimeError(f"{record} was rejected: {entry.outcome.verdict.name}")
    finally:
        await node.close()
    return took[_WARM:]


def propose(place: Place) -> Measured:
    """From a proposal to its verdict, in a node."""
    import uvloop

    bare = bare_ms(place)
    folded = _folded_ms(place)
    prefix = f"bench-{place.number()}."
    node = uvloop.run(_node_ms(place.connection, place.folder / prefix, prefix))
    again = bare_ms(place)
    limit = statistics.median(bare + again)
    value = statistics.median(node)
    return Measured(
        value,
        "ms",
        value / limit,
        2.0,
        limit=limit,
        limit_what="append to consume, the same clients, nothing else",
        details={
            "bare": spread(bare + again),
            "writer_reader_and_view": spread(folded),
            "writer_reader_and_view_ratio": statistics.median(folded) / limit,
            "node": spread(node),
        },
    )
