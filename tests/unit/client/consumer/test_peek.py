"""A look at a topic: what may be asked for, and the order of what is shown."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from hypothesis import given
from hypothesis import strategies as st

from anabranch.client._consumer import group_offsets
from anabranch.client._consumer.peek import check_count, merged, peek
from anabranch.client._settings import EARLIEST, ReceivingSettings
from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.errors import InvalidInputError
from support.still_watch import layout_of
from support.waiting import WAIT_S


def message(partition: int, offset: int, time_ms: int) -> Message:
    return Message(topic="k", partition=partition, offset=offset, timestamp=(1, time_ms))


@pytest.mark.parametrize("most", [0, 10_001, True, "5"])
def test_a_number_of_messages_that_cannot_be_meant_is_refused(most: Any) -> None:
    with pytest.raises(InvalidInputError, match="messages_max is 1 to 10000"):
        check_count(most)


async def test_a_peek_that_is_cancelled_leaves_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, closed = threading.Event(), threading.Event()

    class Silent:
        """A consumer that Kafka does not answer."""

        def __init__(self, *_: object, **__: object) -> None:
            self.close = closed.set

        def offsets_for_times(self, *_: object, **__: object) -> None:
            asked.set()
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(group_offsets, "Consumer", Silent)
    layout = layout_of(SegmentLayout.initial(1), "nowhere:1")
    looking = asyncio.create_task(peek(layout, {}, ReceivingSettings(), 1, EARLIEST, 2 * WAIT_S))
    assert await asyncio.to_thread(asked.wait, WAIT_S)
    looking.cancel()
    assert await asyncio.to_thread(closed.wait, WAIT_S)


@given(st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=4))
def test_messages_are_shown_by_time_in_the_order_of_their_bucket(times: list[list[int]]) -> None:
    found = {
        ("k", bucket): [message(bucket, offset, at) for offset, at in enumerate(each)]
        for bucket, each in enumerate(times)
    }
    shown = merged(found)
    assert len(shown) == sum(map(len, times))
    for bucket in range(len(times)):
        offsets = [each.offset() or 0 for each in shown if each.partition() == bucket]
        assert offsets == sorted(offsets)
    if all(each == sorted(each) for each in times):
        at = [each.timestamp()[1] for each in shown]
        assert at == sorted(at)
