"""Snapshots, trimming and starting from them, on a real Kafka, while everything moves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import msgspec
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.cimpl import NewTopic

from anabranch.channel import errors
from anabranch.channel.codec import Horizon, decode_entity, encode_entity
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import RECORD_BYTES_MAX, Topics, TopicSettings, ensure_topics
from anabranch.channel.log.kafka_log import KafkaLogReader, KafkaLogWriter, offsets
from anabranch.channel.snapshots.compactor import Compactor, TrimResult
from anabranch.channel.snapshots.reader import Pair, SnapshotReader, last_horizon, snapshot_consumer
from anabranch.core.entities.layout import initial_segments
from anabranch.core.entities.segment import SEGMENTS_MAX, SegmentState
from anabranch.core.entities.topic import Operation, ScalableTopic, TopicMove, TopicState
from anabranch.core.log.records import TopicChange, topic_key
from support.channel import append_all, commit_archived, move, read_all, until
from support.there import there
from support.waiting import WAIT_S

_LOG_LENGTH = 200


class Place:
    """Sound topics with a WAL of 200 records, and who leads there."""

    def __init__(self, connection: KafkaConnection, topics: Topics) -> None:
        self.connection = connection
        self.topics = topics
        self.compactor = Compactor(connection, topics)
        self.compactor.begin()

    def commit(
        self, changes: list[Pair], horizon: Horizon, compactor: Compactor | None = None
    ) -> None:
        """Commits, and waits for what Kafka does after it has answered: readers see it."""
        (compactor or self.compactor).snapshot(changes, horizon)
        until(lambda: self.horizon() == horizon, f"{horizon} is read")

    def horizon(self) -> Horizon | None:
        return last_horizon(self.connection, self.topics)

    def read(self) -> tuple[dict[bytes, bytes], int]:
        """The state that a node would start from, and where it would go on."""
        reader = SnapshotReader(self.connection, self.topics)
        state: dict[bytes, bytes] = {}
        for batch in reader.batches():
            _apply(state, batch)
        return state, reader.horizon.next_offset if reader.horizon else 0

    def first_offset(self) -> int:
        consumer = self.connection.consumer()
        first, _ = offsets(self.connection, consumer, self.topics.wal, WAIT_S)
        consumer.close()
        return first


@pytest.fixture
def place(connection: KafkaConnection, topics: Topics) -> Iterator[Place]:
    _fill(connection, topics)
    made = Place(connection, topics)
    yield made
    made.compactor.close()


def _fill(connection: KafkaConnection, topics: Topics) -> None:
    writer = KafkaLogWriter(connection, topics.wal)
    assert append_all(writer, map(move, range(_LOG_LENGTH))) == [None] * _LOG_LENGTH
    writer.close()


def _horizon(next_offset: int) -> Horizon:
    return Horizon(next_offset, f"{next_offset:032x}")


def _apply(state: dict[bytes, bytes], batch: list[Pair]) -> None:
    for key, value in batch:
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value


# --- snapshots ------------------------------------------------------------------------------


def test_a_node_starts_from_the_last_state_of_each_key_and_the_last_horizon(place: Place) -> None:
    assert place.read() == ({}, 0)
    assert place.horizon() is None
    place.compactor.snapshot([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")], _horizon(10))
    place.commit([(b"a", b"2"), (b"b", None)], _horizon(20))

    assert place.read() == ({b"a": b"2", b"c": b"1"}, 20)
    assert place.horizon() == _horizon(20)


def test_the_largest_layout_fits_into_the_log_and_the_snapshot(place: Place) -> None:
    name = "public/default/wide"
    first = initial_segments(SEGMENTS_MAX)
    record = TopicChange("id", name, TopicMove.CREATE, 1, "b1:8080", 1, segments=first)
    writer = KafkaLogWriter(place.connection, place.topics.wal)
    assert append_all(writer, [record]) == [None]
    writer.close()
    reader = KafkaLogReader(place.connection, place.topics.wal, _LOG_LENGTH)
    assert read_all(reader, 1)[0].record() == record
    reader.close()

    now_ms, end = 1_790_000_000_000, (1_000_000_000,)
    sealed = tuple(
        msgspec.structs.replace(
            part,
            state=SegmentState.SEALED,
            created_at_ms=now_ms,
            sealed_at_ms=now_ms,
            end_offsets=end,
        )
        for part in first
    )
    blank = (Operation.NONE, (), (), (), (), TopicMove.OPEN, now_ms, 1, now_ms, "id")
    topic = ScalableTopic(TopicState.STABLE, 2, 2, 0, SEGMENTS_MAX, sealed, *blank)
    key = topic_key(name).encode()
    place.commit([(key, encode_entity(topic))], _horizon(1))
    state, _ = place.read()
    assert decode_entity(there(state[key])) == topic


def test_nobody_sees_a_snapshot_that_was_not_committed(place: Place) -> None:
    place.commit([(b"a", b"1")], _horizon(10))

    def changes() -> Iterator[Pair]:
        yield b"a", b"2"
        assert place.read() == ({b"a": b"1"}, 10)  # while the transaction is open
        raise OSError("the leader's disk broke")

    with pytest.raises(OSError, match="disk broke"):
        place.compactor.snapshot(changes(), _horizon(20))

    assert place.read() == ({b"a": b"1"}, 10)
    assert place.horizon() == _horizon(10)


def test_a_horizon_that_lies_behind_the_snapshots_is_refused(place: Place) -> None:
    place.commit([(b"a", b"1")], _horizon(10))
    with pytest.raises(errors.SnapshotFailedError, match=r"offset 10 already.*up to 9.*catch up"):
        place.compactor.snapshot([(b"a", b"0")], _horizon(9))
    assert place.read() == ({b"a": b"1"}, 10)


def test_a_deposed_leader_is_fenced_even_in_the_middle_of_its_snapshot(place: Place) -> None:
    successor = Compactor(place.connection, place.topics)
    place.commit([(b"a", b"1")], _horizon(10))

    def changes() -> Iterator[Pair]:
        yield b"a", b"old"
        assert successor.begin() == _horizon(10)
        yield b"b", b"old"

    with pytest.raises(errors.FencedError, match=f"{place.topics.compactor_id}.*no longer leads"):
        place.compactor.snapshot(changes(), _horizon(20))
    with pytest.raises(errors.FencedError):
        place.compactor.snapshot([(b"a", b"old")], _horizon(30))
    place.commit([(b"a", b"new")], _horizon(40), successor)

    assert place.read() == ({b"a": b"new"}, 40)
    successor.close()


# --- trimming -------------------------------------------------------------------------------


ONE = ("archive",)


def test_nothing_is_trimmed_without_a_snapshot_and_the_word_of_every_archive(place: Place) -> None:
    assert place.compactor.trim(()) == TrimResult(None, {})
    commit_archived(place.connection, place.topics, 50)
    assert place.compactor.trim(ONE).begins_at is None  # archived, but in no snapshot
    place.commit([(b"a", b"1")], _horizon(100))
    assert place.compactor.trim(()).begins_at is None  # no archive is registered
    assert place.compactor.trim(("archive", "b")) == TrimResult(None, {"archive": 50, "b": None})
    assert place.first_offset() == 0


@pytest.mark.parametrize(
    ("archived", "other", "horizon"), [(50, 60, 100), (70, 50, 100), (100, 90, 50)]
)
def test_only_what_all_archives_hold_and_a_snapshot_too_is_trimmed(
    place: Place, archived: int, other: int, horizon: int
) -> None:
    commit_archived(place.connection, place.topics, archived)
    commit_archived(place.connection, place.topics, other, "b")
    place.commit([(b"a", b"1")], _horizon(horizon))

    trimmed = TrimResult(50, {"archive": archived, "b": other})
    assert place.compactor.trim(("archive", "b")) == trimmed
    assert place.compactor.trim(("archive", "b")) == trimmed  # again, without harm
    assert place.first_offset() == 50
    assert place.read() == ({b"a": b"1"}, horizon)


# --- starting while both move -----------------------------------------------------------------


def test_a_node_that_starts_while_snapshots_are_written_and_the_log_is_trimmed_gets_one_whole_state(
    place: Place,
) -> None:
    commit_archived(place.connection, place.topics, _LOG_LENGTH)
    keys = [f"key-{number}".encode() for number in range(50)]
    place.commit([(key, b"1") for key in keys], _horizon(1))
    over = threading.Event()

    def lead() -> None:
        for offset in range(2, _LOG_LENGTH + 1):
            if over.is_set():
                return
            place.compactor.snapshot([(key, b"%d" % offset) for key in keys], _horizon(offset))
            place.compactor.trim(ONE)

    leader = threading.Thread(target=lead)
    leader.start()
    horizons: list[int] = []
    try:
        while leader.is_alive() and len(horizons) < 20:
            first = place.first_offset()
            state, next_offset = place.read()
            assert state == dict.fromkeys(keys, b"%d" % next_offset)
            assert next_offset >= first
            horizons.append(next_offset)
    finally:
        over.set()
        leader.join(WAIT_S)
    assert not leader.is_alive()
    assert horizons == sorted(horizons)
    assert len(set(horizons)) > 1, "nothing moved: the test has lost its point"


@pytest.mark.long
def test_records_that_kafka_compacts_away_under_a_reader_are_made_up_for_by_newer_ones(
    connection: KafkaConnection, topic_prefix: str
) -> None:
    topics = Topics(topic_prefix)
    eager = {
        "cleanup.policy": "compact",
        "segment.bytes": "1048576",
        "min.cleanable.dirty.ratio": "0.01",
        "unclean.leader.election.enable": "false",
        "max.message.bytes": str(RECORD_BYTES_MAX),
    }
    admin = connection.admin()
    admin.create_topics([NewTopic(topics.snapshot, 1, 1, config=eager)])[topics.snapshot].result(
        WAIT_S
    )
    ensure_topics(connection, topics, TopicSettings(), WAIT_S)
    _fill(connection, topics)
    place = Place(connection, topics)
    # Much more than a reader fetches ahead, so that most of it is still in Kafka only.
    keys = [f"key-{number}".encode() for number in range(12_000)]
    padding = b"x" * 4_000
    place.commit([(key, b"1" + padding) for key in keys], _horizon(1))

    reader = SnapshotReader(connection, topics)
    batches = reader.batches()
    state: dict[bytes, bytes] = {}
    _apply(state, next(batches))
    place.compactor.snapshot([(key, b"2" + padding) for key in keys], _horizon(2))
    closing: list[Pair] = [(keys[0], b"3" + padding)]  # a segment of Kafka's or two
    place.commit(closing, _horizon(3))
    until(
        lambda: _records(connection, topics) < 2 * len(keys) - 3_000,
        "Kafka has compacted the first snapshot away",
    )
    for batch in batches:
        _apply(state, batch)

    assert reader.horizon == _horizon(3)
    assert {value[:1] for value in state.values()} == {b"2", b"3"}
    assert sorted(state) == sorted(keys)
    place.compactor.close()


def _records(connection: KafkaConnection, topics: Topics) -> int:
    """How many records the snapshot topic still holds."""
    time.sleep(0.2)  # called again and again until Kafka's cleaner has run
    consumer = snapshot_consumer(connection)
    consumer.assign([TopicPartition(topics.snapshot, 0, 0)])
    count = 0
    while True:
        for message in consumer.consume(5_000, 1.0):
            if message.error() is not None:
                consumer.close()
                return count
            count += 1


# --- what must stop a node ----------------------------------------------------------------------


def test_a_log_trimmed_past_every_snapshot_stops_the_node_and_says_why(place: Place) -> None:
    place.commit([(b"a", b"1")], _horizon(10))
    admin = place.connection.admin()
    for future in admin.delete_records([TopicPartition(place.topics.wal, 0, 11)]).values():
        future.result(WAIT_S)

    with pytest.raises(
        errors.SnapshotLostError, match=r"begins at offset 11.*stands for offset 10"
    ):
        place.read()


def test_a_snapshot_that_is_ahead_of_its_log_stops_the_node(place: Place) -> None:
    place.commit([(b"a", b"1")], _horizon(_LOG_LENGTH + 1))
    with pytest.raises(errors.LogLostError, match=f"ends at offset {_LOG_LENGTH}"):
        place.read()
