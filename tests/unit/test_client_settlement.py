"""What a count of stored messages says of those in doubt, and when nothing can be known of them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pytest

from anabranch.client.errors import UnknownOutcomeError
from anabranch.client.segment_writer import Lane, SegmentWriter, Tally
from anabranch.client.settings import ProducerSettings
from anabranch.client.settlement import by_header, first_of, found
from anabranch.client.topic_layout import Segment, TopicLayout
from anabranch.core.layout import SegmentLayout


def test_without_given_up_messages_the_count_tells() -> None:
    assert [first_of(4, beyond, 0) for beyond in range(5)] == [0, 1, 2, 3, 4]


def test_messages_that_were_given_up_are_never_counted_for_others() -> None:
    for refused, forgone in itertools.product(range(4), range(1, 4)):
        for there, given_up_there in itertools.product(range(refused + 1), range(forgone + 1)):
            try:
                told = first_of(refused, there + given_up_there, forgone)
            except UnknownOutcomeError:
                continue
            assert told == there


def test_what_is_all_there_or_not_there_at_all_is_certain_also_then() -> None:
    assert first_of(3, 0, 2) == 0
    assert first_of(3, 5, 2) == 3


def test_a_count_that_cannot_be_is_not_believed() -> None:
    with pytest.raises(UnknownOutcomeError, match="cannot be"):
        first_of(3, 6, 2)


_WITH_HEADERS = {  # as where SASL guards Kafka, so the partition would have to be read
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "nobody",
    "sasl.password": "nothing",
}
_NOBODY = "127.0.0.1:1"


@pytest.fixture
def lane() -> Iterator[Lane]:
    """A flow that has nothing under way."""
    (info,) = SegmentLayout.initial(1, 1).active
    layout = TopicLayout(
        "public/default/orders", incarnation=1, epoch=1, segments={}, bootstrap_servers=_NOBODY
    )
    writer = SegmentWriter(layout, ProducerSettings(), _WITH_HEADERS)
    yield Lane(1, Segment(info, "t0"), 0, "orders", writer, Tally(), lambda *_: None)
    writer.close()


def test_of_a_segment_that_was_pruned_meanwhile_nothing_can_be_known(lane: Lane) -> None:
    pruned = TopicLayout(
        "public/default/orders", incarnation=1, epoch=9, segments={}, bootstrap_servers=_NOBODY
    )
    with pytest.raises(UnknownOutcomeError, match="pruned"):
        asyncio.run(found(lane, pruned, _WITH_HEADERS, 1.0, asyncio.Event()))


def test_where_no_consumer_can_be_made_nothing_can_be_known(lane: Lane) -> None:
    gone = {"bootstrap.servers": _NOBODY, "security.protocol": "ssl", "ssl.ca.location": "/no/file"}
    with pytest.raises(UnknownOutcomeError, match=r"ssl\.ca\.location"):
        by_header(lane, 5, gone, 1.0)
