"""What a producer appends to one bucket: batches, their numbers, and under whose id they go."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from msgspec.structs import replace

from anabranch.client import Segment
from anabranch.client._producer.batch import (
    CODECS,
    SEQUENCES,
    BatchLimits,
    PendingMessage,
    ProducerId,
    RecordBatch,
)
from anabranch.client._producer.partition_writer import PartitionWriter, Step
from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.segment import SegmentState, legacy_segment
from support.still_watch import layout_of

ME, NEXT = ProducerId(7, 0), ProducerId(8, 0)
_FIRST = SegmentLayout.initial(1, 1)


def writer_of(*values: bytes, batch: int = 2) -> PartitionWriter:
    """It has appended these, so many to a batch, and has a producer id."""
    (info,) = _FIRST.active
    limits = BatchLimits(messages=batch)
    writer = PartitionWriter(1, Segment(info, "t0"), 0, limits, producer=ME, copies=1)
    for value in values:
        writer.append(b"k", value, 1)
    return writer


def taken(writer: PartitionWriter) -> RecordBatch:
    batch = writer.take()
    assert batch is not None
    return batch


def values(messages: list[PendingMessage]) -> list[bytes | None]:
    return [each.value for each in messages]


# --- batches --------------------------------------------------------------------------------


def test_a_batch_takes_no_more_than_its_messages_and_its_bytes() -> None:
    by_count, by_bytes = RecordBatch(BatchLimits(messages=2)), RecordBatch(BatchLimits(bytes=1_000))
    assert [by_count.take(None, b"v", 1, []) for _ in range(3)] == [True, True, False]
    assert [by_bytes.take(None, bytes(400), 1, []) for _ in range(3)] == [True, True, False]
    assert (by_count.count, by_count.bytes, by_bytes.count, by_bytes.bytes) == (2, 2, 2, 800)


def test_a_message_that_is_larger_is_a_batch_by_itself() -> None:
    batch = RecordBatch(BatchLimits(bytes=1_000))
    assert batch.take(None, bytes(5_000), 1, [])
    assert not batch.take(None, b"v", 1, [])


@pytest.mark.parametrize("codec", CODECS)
def test_what_kafka_gets_is_compressed_as_it_says_and_whole(codec: str) -> None:
    batch = RecordBatch(BatchLimits(codec=CODECS[codec]))
    sent = [b"%d" % number * 20 for number in range(100)]
    for value in sent:
        batch.take(b"key", value, 1, [])
    batch.number(ME, 0)
    stored = DefaultRecordBatch(bytes(batch.data))
    assert (stored.validate_crc(), stored.compression_type) == (True, CODECS[codec])
    assert len(batch.data) < 2_000 or codec == "none"
    assert [record.value for record in stored] == sent


# --- what is appended -------------------------------------------------------------------------


class Name(StrEnum):
    KE = "ke"


@pytest.mark.parametrize("key", ["ke", b"ke", bytearray(b"ke"), memoryview(b"k.e.")[::2], Name.KE])
def test_a_key_of_any_kind_is_stored_as_bytes_and_keeps_them_under_another_id(key: Any) -> None:
    writer = writer_of()
    writer.append(key, b"v", 1, message=PendingMessage(key, b"v"))
    taken(writer)
    writer.estranged()
    writer.producer = NEXT
    (record,) = DefaultRecordBatch(bytes(taken(writer).data))
    assert record.key == b"ke"


def test_what_cannot_be_appended_leaves_no_batch_behind() -> None:
    writer = writer_of()
    with pytest.raises(TypeError):
        writer.append(b"k", "no bytes", 1)  # type: ignore[arg-type]  # on purpose
    assert (writer.has_more, writer.appended, writer.waiting_since) == (False, 0, None)


def test_it_is_told_with_which_message_a_batch_begins() -> None:
    writer = writer_of()
    assert [writer.append(b"k", b"v", 1) for _ in range(5)] == [True, False, True, False, True]


# --- what is tried, and its numbers -------------------------------------------------------------


def test_one_batch_at_a_time_is_tried_in_their_order_and_none_without_a_producer_id() -> None:
    writer, sent = writer_of(b"1", b"2", b"3"), list[bytes | None]()
    writer.producer = None
    assert writer.take() is None
    writer.producer = ME
    while writer.has_more:
        batch = taken(writer)
        assert (writer.take(), writer.has_more) == (None, False)
        writer.acked()
        sent += values(batch.messages())
    assert sent == [b"1", b"2", b"3"]
    assert writer.outstanding == 0


def test_numbers_have_no_gap_and_begin_again_at_2_to_the_31() -> None:
    writer = writer_of(b"1", b"2", b"3", b"4", b"5")
    writer.sequence = SEQUENCES - 3
    numbers = []
    for _ in range(3):
        numbers.append(DefaultRecordBatch(bytes(taken(writer).data)).base_sequence)
        writer.acked()
    assert (numbers, writer.sequence) == ([SEQUENCES - 3, SEQUENCES - 1, 1], 2)


@pytest.mark.parametrize("in_doubt", [False, True])
def test_a_batch_that_is_tried_again_has_the_same_bytes(in_doubt: bool) -> None:
    writer = writer_of(b"1", batch=10)
    first = taken(writer)
    data = bytes(first.data)
    writer.append(b"k", b"2", 1)
    writer.unanswered(in_doubt)
    again = taken(writer)
    assert again is first
    assert (bytes(again.data), again.tries, again.in_doubt) == (data, 2, in_doubt)


def test_where_kafka_knows_the_id_no_more_the_same_goes_in_order_under_another() -> None:
    writer = writer_of(b"0", batch=3)
    taken(writer)
    writer.acked()
    waiting = [PendingMessage(b"k", b"1", (), 1), PendingMessage("k", b"3", [("h", None)], 9)]
    writer.append(b"k", b"1", 1, message=waiting[0])
    writer.append(b"k", b"2", 5, [("a", b"b")])
    writer.append("k", b"3", 9, [("h", None)], waiting[1])
    writer.append(b"k", b"4", 1)
    before = taken(writer)
    before.since = 17.0
    writer.estranged()
    assert (writer.take(), writer.former, writer.outstanding) == (None, ME, 4)
    writer.producer = NEXT
    again = taken(writer)
    stored = DefaultRecordBatch(bytes(again.data))
    assert (stored.producer_id, stored.base_sequence, again.since) == (NEXT.id, 0, 17.0)
    assert [(r.key, r.value, r.timestamp, r.headers) for r in stored] == [
        (b"k", b"1", 1, []),
        (b"k", b"2", 5, [("a", b"b")]),
        (b"k", b"3", 9, [("h", None)]),
    ]
    assert again.noted == [(0, waiting[0]), (2, waiting[1])]
    writer.acked()
    following = taken(writer)
    assert (values(following.messages()), following.sequence) == ([b"4"], 3)


# --- what is given up -----------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["on its way", "unanswered", "unanswered once"])
def test_what_may_be_stored_and_is_given_up_leaves_a_gap_so_another_id_follows(case: str) -> None:
    writer = writer_of(b"1", b"2", b"3")
    taken(writer)
    if case != "on its way":
        writer.unanswered(in_doubt=True)
    if case == "unanswered once":
        taken(writer)
        writer.unanswered(in_doubt=False)
    assert writer.drop_tried().in_doubt
    assert (writer.producer, writer.former, writer.sequence) == (None, ME, 0)


def test_what_is_certainly_not_stored_and_is_given_up_leaves_its_number_to_the_next() -> None:
    writer = writer_of(b"1", b"2", b"3")
    taken(writer)
    writer.unanswered(in_doubt=False)
    assert not writer.drop_tried().in_doubt
    following = taken(writer)
    assert (writer.producer, following.sequence) == (ME, 0)
    assert values(following.messages()) == [b"3"]


def test_what_was_never_tried_is_given_up_batch_by_batch_as_it_gets_late() -> None:
    writer = writer_of()
    for number in range(3):
        writer.append(b"k", b"%d" % number, 1)
        assert writer.filling is not None
        writer.filling.since = float(number + 1)
        writer.cut()
    late = writer.drop_untried(3.0)
    assert [values(batch.messages()) for batch in late] == [[b"0"], [b"1"]]
    assert (writer.outstanding, writer.waiting_since) == (1, 3.0)
    taken(writer)
    assert writer.drop_untried(100.0) == [], "it is tried"


# --- how it leaves --------------------------------------------------------------------------------


@pytest.mark.parametrize("in_doubt", [False, True])
def test_what_was_tried_is_refused_and_the_rest_is_held_before_what_came_later(
    in_doubt: bool,
) -> None:
    writer = writer_of(b"0", b"1", b"2", b"3", b"4", b"5", b"6")
    taken(writer)
    writer.acked()
    taken(writer)
    writer.unanswered(in_doubt)
    writer.held.append(PendingMessage(b"k", b"later"))
    assert values(writer.reclaim()) == [b"2", b"3", b"4", b"5", b"6"]
    assert values(writer.refused) == [b"2", b"3"]
    assert values(list(writer.held)) == [b"4", b"5", b"6", b"later"]
    assert (writer.refused_number, writer.in_doubt, writer.outstanding) == (2, in_doubt, 0)


def test_what_is_on_its_way_is_not_taken_back() -> None:
    writer = writer_of(b"0", b"1", b"2")
    taken(writer)
    assert values(writer.reclaim()) == [b"2"]
    assert (writer.refused, writer.outstanding) == ([], 2)


@pytest.mark.parametrize(
    ("copies", "announced", "sealed"),
    [(1, Step.MOVE, Step.MOVE), (3, Step.NOTHING, Step.MOVE), (0, Step.NOTHING, Step.MOVE)],
)
def test_a_bucket_with_copies_is_left_when_its_segment_is_sealed_not_when_it_refuses(
    copies: int, announced: Step, sealed: Step
) -> None:
    writer = writer_of()
    writer.open, writer.copies = False, copies
    assert writer.step(layout_of(_FIRST)) is Step.NOTHING, "refused before we know why"
    under_way = layout_of(_FIRST, parents_under_way=frozenset({0}), sealing=True)
    assert writer.step(under_way) is announced
    assert writer.step(layout_of(_FIRST.split_segment(0))) is sealed


def test_a_bucket_is_left_for_an_adopted_topic_once_that_has_taken_over() -> None:
    """It takes messages again only after every bucket that it replaces refuses."""
    writer = writer_of()
    writer.open, writer.copies = False, 1
    child = replace(legacy_segment("old", "", 4, "murmur2"), segment_id=1, parent_ids=(0,))
    under_way = layout_of(
        _FIRST,
        parents_under_way=frozenset({0}),
        sealing=True,
        children=(Segment(child, "old"),),
    )
    assert writer.step(under_way) is Step.NOTHING
    taken_over = SegmentLayout(
        2, 2, [replace(_FIRST.segments[0], state=SegmentState.SEALED), child]
    )
    assert writer.step(layout_of(taken_over)) is Step.MOVE


def test_doubt_is_settled_before_the_bucket_is_left_and_given_up_where_nothing_can_tell() -> None:
    writer = writer_of()
    writer.open, writer.in_doubt = False, True
    sealed = layout_of(_FIRST.replaced((0,), _FIRST.split_children(0), {0: (5,)}, 0))
    announced = layout_of(_FIRST, parents_under_way=frozenset({0}), sealing=True)
    assert writer.step(announced) is Step.NOTHING
    assert writer.step(sealed) is Step.RESOLVE
    assert writer.step(sealed.as_deleted()) is Step.GIVE_UP
    assert writer.step(replace(sealed, segments={})) is Step.GIVE_UP
    assert writer.step(replace(sealed, incarnation=2)) is Step.GIVE_UP
    writer.resolving = True
    assert writer.step(sealed) is Step.NOTHING


@pytest.mark.parametrize(("in_doubt", "producer"), [(False, ME), (True, None)])
def test_a_writer_that_goes_on_after_all_has_another_id_only_for_what_may_be_stored(
    in_doubt: bool, producer: ProducerId | None
) -> None:
    writer = writer_of(b"0")
    taken(writer)
    writer.unanswered(in_doubt)
    writer.reclaim()
    assert values(writer.fail_refused()) == [b"0"]
    assert (writer.producer, writer.refused, writer.in_doubt) == (producer, [], False)
