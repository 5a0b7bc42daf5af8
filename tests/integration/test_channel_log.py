"""The WAL and the heartbeats on a real Kafka."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from anabranch.channel import errors
from anabranch.channel.codec import Horizon
from anabranch.channel.heartbeats import KafkaHeartbeats
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics, TopicSettings, ensure_topics
from anabranch.channel.log.entries import append_record
from anabranch.channel.log.kafka_log import KafkaLogEnd, KafkaLogReader, KafkaLogWriter
from anabranch.channel.snapshots.compactor import Compactor
from anabranch.channel.snapshots.reader import SnapshotReader
from anabranch.core.log.records import Record
from anabranch.core.sessions.lease import Heartbeat
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.channel import append_all, move, produce_raw, produce_raw_many, read_all, until
from support.record_batches import batches_of
from support.tcp_proxy import ProxiedKafka
from support.waiting import WAIT_S


def _beat(sequence: int) -> Heartbeat:
    return Heartbeat(
        "b1:8080", 1, sequence, sequence / 2, "serving", 0, "0" * 32, -1, "http://b1", "x", "0.1.0"
    )


def test_records_are_read_back_in_order_with_the_logs_own_time(
    connection: KafkaConnection, topics: Topics
) -> None:
    writer = KafkaLogWriter(connection, topics.wal)
    reader = KafkaLogReader(connection, topics.wal, 0)
    records = [move(number) for number in range(2_000)]
    before_ms = time.time_ns() // 1_000_000

    assert append_all(writer, records) == [None] * 2_000
    entries = read_all(reader, 2_000)

    assert [entry.record() for entry in entries] == records
    assert [entry.offset for entry in entries] == list(range(2_000))
    stamps = [entry.timestamp_ms for entry in entries]
    assert stamps == sorted(stamps)
    assert stamps[0] >= before_ms
    assert reader.next_offset == 2_000
    assert reader.offsets(WAIT_S) == (0, 2_000)
    assert asyncio.run(KafkaLogEnd(connection, topics.wal).ask()) == 2_000
    writer.close()
    reader.close()


def test_what_is_proposed_while_an_append_is_under_way_goes_together(
    proxied: ProxiedKafka, topic_prefix: str
) -> None:
    """But for the next one, which librdkafka makes up at once; and the first waits for no other."""
    kafka, proxy = proxied
    connection = KafkaConnection(proxied.advertised)
    topics = Topics(topic_prefix)
    wal = topics.wal
    ensure_topics(connection, topics, TopicSettings(), WAIT_S)
    reader = KafkaLogReader(KafkaConnection(kafka.bootstrap_servers), wal, 0)
    writer = KafkaLogWriter(connection, wal)
    answers = append_all(writer, [move(0)])
    proxy.hold_answers()
    try:
        append_record(writer, move(1), answers.append)
        until(lambda: reader.offsets(WAIT_S)[1] == 2, "Kafka has the append")
        for number in range(2, 9):
            append_record(writer, move(number), answers.append)
            assert reader.offsets(WAIT_S)[1] == 2  # as long as it was not answered
    finally:
        proxy.let_answers_through()

    def all_answered() -> bool:
        writer.serve(0.1)
        return len(answers) == 9

    until(all_answered, "every append is answered")
    writer.close()
    reader.close()
    assert answers == [None] * 9
    batches = batches_of(kafka, wal, 0)
    assert (batches[:2], sum(batches)) == ([1, 1], 9)
    assert len(batches) <= 4


def test_a_corrupt_record_is_unreadable_and_the_reader_goes_on(
    connection: KafkaConnection, topics: Topics
) -> None:
    writer = KafkaLogWriter(connection, topics.wal)
    reader = KafkaLogReader(connection, topics.wal, 0)
    append_all(writer, [move(0)])
    produce_raw(connection, topics.wal, b"k", b"junk")
    produce_raw(connection, topics.wal, None, None)
    produce_raw(
        connection, topics.wal, b"k", b"\xc3\x01\x07", [("anabranch-schema", b"unit-move/1")]
    )
    append_all(writer, [move(1)])

    assert [entry.record() for entry in read_all(reader, 5)] == [move(0), None, None, None, move(1)]
    writer.close()
    reader.close()


def test_a_reader_outside_the_log_is_told_on_which_side(
    connection: KafkaConnection, topics: Topics
) -> None:
    writer = KafkaLogWriter(connection, topics.wal)
    append_all(writer, [move(number) for number in range(10)])
    writer.close()
    admin = connection.admin()
    for future in admin.delete_records([TopicPartition(topics.wal, 0, 4)]).values():
        future.result(WAIT_S)

    with pytest.raises(errors.LogTrimmedError) as caught:
        KafkaLogReader(connection, topics.wal, 3)
    assert (caught.value.next_offset, caught.value.first_offset) == (3, 4)
    with pytest.raises(errors.LogLostError, match="ends at offset 10"):
        KafkaLogReader(connection, topics.wal, 11)
    at_the_edge = KafkaLogReader(connection, topics.wal, 4)
    assert [entry.offset for entry in read_all(at_the_edge, 6)] == [4, 5, 6, 7, 8, 9]
    at_the_edge.close()


def test_a_reader_that_is_overtaken_by_a_trim_is_told_so(
    connection: KafkaConnection, topics: Topics
) -> None:
    # Several times what a reader fetches ahead, so that most of it is still in Kafka only.
    count = 120
    produce_raw_many(connection, topics.wal, [b"x" * 500_000] * count)
    reader = KafkaLogReader(connection, topics.wal, 0)
    read_all(reader, 1)
    admin = connection.admin()
    for future in admin.delete_records([TopicPartition(topics.wal, 0, count)]).values():
        future.result(WAIT_S)

    with pytest.raises(errors.LogTrimmedError) as caught:
        read_all(reader, count - 1)
    assert (caught.value.next_offset, caught.value.first_offset) == (reader.next_offset, count)
    reader.close()


@pytest.mark.long
def test_the_channel_recovers_by_itself_when_kafka_was_stopped_and_started_again(
    tmp_path: Path,
) -> None:
    with EmbeddedKafka(tmp_path / "kafka") as kafka:
        connection = KafkaConnection(kafka.bootstrap_servers)
        topics = Topics("again.")
        ensure_topics(connection, topics, TopicSettings(), WAIT_S)
        writer = KafkaLogWriter(connection, topics.wal, delivery_timeout_s=1.0)
        reader = KafkaLogReader(connection, topics.wal, 0)
        beats = KafkaHeartbeats(connection, topics)
        first = Compactor(connection, topics)  # as patient as Kafka's first transaction needs
        assert first.begin() is None
        first.close()
        compactor = Compactor(connection, topics, deadline_s=10.0)
        assert compactor.begin() is None
        until(lambda: append_all(writer, [move(0)]) == [None], "an append succeeds")
        assert read_all(reader, 1)[0].record() == move(0)

        kafka.stop()
        assert [type(answer) for answer in append_all(writer, [move(1)])] == [
            errors.AppendUnknownError
        ]
        reader._out_of_range = True  # said by Kafka just before it went
        assert reader.poll(10, 0.2) == []
        assert reader.poll(10, 0.2) == []
        assert beats.poll(0.2) == []
        with pytest.raises(errors.KafkaUnreachableError, match=r"wal.*check that it runs"):
            reader.offsets(0.5)
        with pytest.raises(errors.SnapshotFailedError, match=topics.snapshot):
            compactor.snapshot([(b"a", b"lost")], Horizon(1, "lost"))
        compactor.close()

        kafka.start()
        until(lambda: append_all(writer, [move(2)]) == [None], "an append succeeds again")
        found: list[Record | None] = []

        def came_back() -> bool:
            found.extend(entry.record() for entry in reader.poll(10, 0.2))
            return move(2) in found

        until(came_back, "the record after the outage is read")
        acked: list[Heartbeat] = []

        def beating() -> bool:
            beats.publish(_beat(1), acked.append)
            return bool(beats.poll(0.2)) and bool(acked)

        until(beating, "heartbeats are acknowledged and heard again")
        compactor = Compactor(connection, topics)
        assert compactor.begin() is None
        compactor.snapshot([(b"a", b"kept")], Horizon(1, "kept"))
        snapshots = [SnapshotReader(connection, topics)]

        def visible() -> bool:  # Kafka confirms a transaction before readers can see its end
            if list(snapshots[-1].batches()) == [[(b"a", b"kept")]]:
                return True
            snapshots.append(SnapshotReader(connection, topics))
            return False

        until(visible, "the new snapshot is there, and nothing of the one that failed")
        assert snapshots[-1].horizon == Horizon(1, "kept")
        for client in (writer, reader, beats, compactor):
            client.close()
