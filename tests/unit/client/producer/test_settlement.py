"""What a count of stored messages says of those in doubt, and when nothing can be known of them."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from msgspec.structs import replace

from anabranch import client as sdk
from anabranch.client._producer import settlement
from anabranch.client._producer.kafka_writer import KafkaPartitionWriter, Volume
from anabranch.client._producer.partition_writer import PendingMessage
from anabranch.client._producer.segment_writer import SegmentWriter
from anabranch.client._producer.settlement import by_header, by_number, first_of, found
from anabranch.client._producer.throttled import Throttled
from anabranch.core.topics.entries import PRODUCER_HEADER
from anabranch.core.topics.layout import SegmentLayout
from anabranch.wire.kafka import producer_state
from anabranch.wire.kafka.producer_state import ProducerState
from anabranch.wire.kafka.protocol import KafkaProtocolError


def test_without_given_up_messages_the_count_tells() -> None:
    assert [first_of(4, beyond, 0) for beyond in range(5)] == [0, 1, 2, 3, 4]


def test_messages_that_were_given_up_are_never_counted_for_others() -> None:
    for refused, forgone in itertools.product(range(4), range(1, 4)):
        for there, given_up_there in itertools.product(range(refused + 1), range(forgone + 1)):
            try:
                told = first_of(refused, there + given_up_there, forgone)
            except sdk.UnknownOutcomeError:
                continue
            assert told == there


def test_what_is_all_there_or_not_there_at_all_is_certain_also_then() -> None:
    assert (first_of(3, 0, 2), first_of(3, 5, 2)) == (0, 3)
    with pytest.raises(sdk.UnknownOutcomeError, match="cannot be"):
        first_of(3, 6, 2)


_WITH_HEADERS = {  # as where SASL guards Kafka, so the partition would have to be read
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "nobody",
    "sasl.password": "nothing",
}
_NOBODY = "127.0.0.1:1"


def layout_with(segments: dict[int, sdk.Segment], servers: str = _NOBODY) -> sdk.TopicLayout:
    return sdk.TopicLayout(
        "public/default/orders",
        incarnation=1,
        epoch=1,
        segments=segments,
        bootstrap_servers=servers,
    )


@pytest.fixture
def partition() -> Iterator[KafkaPartitionWriter]:
    """A partition writer that has nothing under way."""
    (info,) = SegmentLayout.initial(1, 1).active
    writer = SegmentWriter(layout_with({}), sdk.ProducerSettings(), _WITH_HEADERS, Throttled())
    yield KafkaPartitionWriter(
        1, sdk.Segment(info, "t0"), 0, "orders", writer, Volume(), lambda *_: None
    )
    writer.close()


def test_of_a_pruned_segment_nothing_can_be_known(partition: KafkaPartitionWriter) -> None:
    with pytest.raises(sdk.UnknownOutcomeError, match="pruned"):
        asyncio.run(found(partition, layout_with({}), _WITH_HEADERS, 1.0, asyncio.Event()))


def test_without_a_consumer_nothing_can_be_known(partition: KafkaPartitionWriter) -> None:
    gone = {"bootstrap.servers": _NOBODY, "security.protocol": "ssl", "ssl.ca.location": "/no/file"}
    with pytest.raises(sdk.UnknownOutcomeError, match=r"ssl\.ca\.location"):
        by_header(partition, 5, gone, 1.0)


# --- by number ------------------------------------------------------------------------------

MINE, OTHERS = 7, 8
END = 40
Counted = tuple[int, int, int]  # producer, epoch, last sequence number


def stored(
    partition: KafkaPartitionWriter, monkeypatch: pytest.MonkeyPatch, acked: int, *states: Counted
) -> int:
    """How many of three refused ones the partition is found to hold, if its leader says this."""
    partition.appended = partition.reported = acked
    partition.refused = [PendingMessage(None, b"%d" % number) for number in range(3)]
    monkeypatch.setattr(SegmentWriter, "leader", lambda *_: ("127.0.0.1", 1))
    monkeypatch.setattr(producer_state, "ask", lambda *_: [ProducerState(*each) for each in states])
    return len(by_number(partition, MINE, END, {}, 1.0))


@pytest.mark.parametrize(
    ("acked", "states", "found"),
    [
        (5, [(OTHERS, 0, 6), (MINE, 0, 4)], 0),
        (5, [(OTHERS, 0, 6), (MINE, 0, 5)], 1),
        (5, [(OTHERS, 0, 6), (MINE, 0, 7)], 3),
        (0, [(OTHERS, 0, 2)], 0),  # nothing of the producer was ever stored
        (producer_state.SEQUENCES - 1, [(MINE, 0, 1)], 3),  # they go on at 0 after the last one
    ],
)
def test_sequence_numbers_begin_at_0_and_count_what_was_acknowledged(
    partition: KafkaPartitionWriter,
    monkeypatch: pytest.MonkeyPatch,
    acked: int,
    states: list[Counted],
    found: int,
) -> None:
    assert stored(partition, monkeypatch, acked, *states) == found


def test_less_than_was_acknowledged_and_what_another_epoch_counted_are_not_believed(
    partition: KafkaPartitionWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    for state, words in (((MINE, 1, 5), "changed its epoch"), ((MINE, 0, 3), "cannot be")):
        with pytest.raises(sdk.UnknownOutcomeError, match=words):
            stored(partition, monkeypatch, 5, state)


def test_a_leader_out_of_reach_is_asked_again_until_the_deadline(
    partition: KafkaPartitionWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition.refused = [PendingMessage(None, b"x")]
    gone: Iterator[Exception | None] = iter((ConnectionResetError("gone"), None))

    def ask(*_: object) -> list[ProducerState]:
        if (error := next(gone)) is not None:
            raise error
        return [ProducerState(MINE, 0, 0)]

    monkeypatch.setattr(SegmentWriter, "leader", lambda *_: ("127.0.0.1", 1))
    monkeypatch.setattr(producer_state, "ask", ask)
    # Neither place nor time is known.
    assert by_number(partition, MINE, END, {}, 60.0) == [(-1, -1)]
    gone = iter((KafkaProtocolError("it may not tell"),))
    with pytest.raises(sdk.UnknownOutcomeError, match="it may not tell"):
        by_number(partition, MINE, END, {}, 60.0)
    gone = iter((ConnectionResetError("gone"),))
    with pytest.raises(sdk.DeadlineError, match="could not be asked: gone"):
        by_number(partition, MINE, END, {}, -1.0)


def test_the_producers_id_is_awaited_and_no_older_one_is_taken(
    partition: KafkaPartitionWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition.refused_at = 17.0
    partition.segment_writer.counts = True
    told = iter((None, None, MINE))
    asked: list[float] = []

    def kafka_id(_: SegmentWriter, not_before: float) -> int | None:
        asked.append(not_before)
        asyncio.get_running_loop().call_soon(tick.set)
        return next(told)

    monkeypatch.setattr(SegmentWriter, "kafka_id", kafka_id)
    monkeypatch.setattr(settlement, "by_number", lambda *given: given[1:])
    tick = asyncio.Event()
    layout = layout_with(
        {0: sdk.Segment(replace(partition.segment.info, end_offsets=(END,)), "t0")}
    )
    done: object = asyncio.run(found(partition, layout, {}, 60.0, tick))
    assert (done, asked) == ((MINE, END, {}, 60.0), [17.0] * 3)
    with pytest.raises(sdk.DeadlineError, match="in time"):
        asyncio.run(found(partition, layout, {}, 0.0, tick))


# --- by header ------------------------------------------------------------------------------


class Tail:
    """What a partition holds of two producers, as a consumer reads it from where it is put."""

    def __init__(self, owners: dict[int, bytes]) -> None:
        self._owners = owners
        self._next = 0

    def assign(self, places: list[TopicPartition]) -> None:
        self._next = places[0].offset

    def poll(self, _timeout: float) -> Message | None:
        return next(iter(self.consume(1, 0)), None)

    def consume(self, most: int, _timeout: float) -> list[Message]:
        found: list[Message] = []
        while len(found) < most and self._next in self._owners:
            owner = self._owners[self._next]
            headers = [(PRODUCER_HEADER, owner)] if owner else None
            record = SimpleNamespace(
                error=lambda: None,
                offset=lambda at=self._next: at,
                headers=lambda headers=headers: headers,
                timestamp=lambda at=self._next: (1, 1_000 + at),
            )
            found.append(cast(Message, record))
            self._next += 1
        return found

    def close(self) -> None:
        """Nothing is open."""


def in_tail(
    partition: KafkaPartitionWriter,
    monkeypatch: pytest.MonkeyPatch,
    owners: dict[int, bytes],
    end: int,
) -> list[int]:
    partition.refused = [PendingMessage(None, b"x"), PendingMessage(None, b"y")]
    monkeypatch.setattr(settlement, "_reader", lambda _: Tail(owners))
    return [offset for offset, _ in by_header(partition, end, {}, 60.0)]


def test_the_sealed_tail_is_read_from_behind_what_was_acknowledged_last_to_the_sealed_end(
    partition: KafkaPartitionWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = partition.segment_writer.producer_id
    partition.last_offset = 4  # an own message, acknowledged
    owners = {4: mine, 5: b"other", 6: mine, 7: b"", 8: mine, 9: mine}
    assert in_tail(partition, monkeypatch, owners, 9) == [6, 8]
    assert in_tail(partition, monkeypatch, owners, 8) == [6]
    assert in_tail(partition, monkeypatch, owners, 6) == []
    assert in_tail(partition, monkeypatch, owners, 5) == []


def test_what_was_acknowledged_without_its_place_is_not_counted_for_what_was_refused(
    partition: KafkaPartitionWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = partition.segment_writer.producer_id
    partition.unlocated = 1
    assert in_tail(partition, monkeypatch, {0: mine, 1: mine, 2: b"other", 3: mine}, 4) == [1, 3]


def test_the_tail_is_read_to_where_the_layout_says_that_its_segment_ends(
    partition: KafkaPartitionWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = SimpleNamespace(info=SimpleNamespace(end_offsets=(9,)))
    segments = cast(dict[int, sdk.Segment], {partition.segment.segment_id: ended})
    layout = layout_with(segments, "elsewhere")
    monkeypatch.setattr(settlement, "by_header", lambda *given: given[1:])
    located = {"bootstrap.servers": "elsewhere", "client.id": "x"}
    done: object = asyncio.run(found(partition, layout, {"client.id": "x"}, 60.0, asyncio.Event()))
    assert done == (9, located, 60.0)


def test_where_nothing_can_be_there_nothing_is_read(partition: KafkaPartitionWriter) -> None:
    assert by_header(partition, 0, {"bootstrap.servers": _NOBODY, "no": "property"}, 1.0) == []


def test_the_tail_is_read_and_nothing_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settlement, "Consumer", lambda settings: settings)
    assert settlement._reader({"client.id": "x"}) == {  # type: ignore[comparison-overlap]
        "group.id": "anabranch-no-group",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_uncommitted",
        "fetch.wait.max.ms": 10,
        "enable.partition.eof": True,
        "client.id": "x",
    }


_RETRIABLE = KafkaError.NOT_LEADER_FOR_PARTITION


class Troubled(Tail):
    """A tail that says nothing at first, then these errors, each at an offset; then it is read."""

    def __init__(self, owners: dict[int, bytes], *errors: tuple[int, int]) -> None:
        super().__init__(owners)
        self._said: list[Message | None] = [None]
        for code, at in errors:
            error = SimpleNamespace(
                error=lambda code=code: KafkaError(code, None, False, code == _RETRIABLE),
                offset=lambda at=at: at,
            )
            self._said.append(cast(Message, error))

    def poll(self, _timeout: float) -> Message | None:
        return self._said.pop(0) if self._said else super().poll(_timeout)

    def consume(self, most: int, timeout: float) -> list[Message]:
        return [] if self._said else super().consume(most, timeout)


def scanned(
    partition: KafkaPartitionWriter, owners: dict[int, bytes], *errors: tuple[int, int]
) -> list[int]:
    tail = cast(Consumer, Troubled(owners, *errors))
    place = TopicPartition(partition.topic, partition.bucket, 0)
    mine = partition.segment_writer.producer_id
    return [at for at, _ in settlement._scan(tail, place, 2, mine, time.monotonic() + 60.0)]


def test_passing_errors_and_gaps_do_not_hide_the_tail(partition: KafkaPartitionWriter) -> None:
    mine = partition.segment_writer.producer_id
    assert scanned(partition, {0: mine, 1: mine}, (KafkaError._TRANSPORT, -1001)) == [0, 1]
    assert scanned(partition, {0: mine, 1: mine}, (_RETRIABLE, -1001)) == [0, 1]
    assert scanned(partition, {}, (KafkaError._PARTITION_EOF, 2)) == []


def test_an_error_that_does_not_pass_is_told(partition: KafkaPartitionWriter) -> None:
    with pytest.raises(KafkaException) as raised:
        scanned(partition, {}, (KafkaError.TOPIC_AUTHORIZATION_FAILED, -1001))
    assert raised.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
