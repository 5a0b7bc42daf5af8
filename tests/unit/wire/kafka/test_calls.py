"""The calls that a Kafka answers, read to the byte from the answers of several makes."""

from __future__ import annotations

import struct

import pytest

from anabranch.wire.kafka.calls import newest_calls
from anabranch.wire.kafka.protocol import NO_TAGS, KafkaProtocolError, array
from support.frame_broker import frame
from support.leader import Leader
from support.waiting import WAIT_S

_REDPANDA = {0: 7, 1: 11, 3: 8, 19: 5, 21: 2, 22: 3, 29: 2, 30: 2, 31: 2, 32: 4, 44: 1, 60: 0}


def _answering(body: bytes) -> Leader:
    """It answers one question by these bytes, whose header has no tags."""
    return Leader(frame(1, body))


def _told(calls: dict[int, int], error: int = 0) -> bytes:
    listed = array([struct.pack(">hhh", n, 0, newest) + NO_TAGS for n, newest in calls.items()])
    return struct.pack(">h", error) + listed + struct.pack(">i", 0) + NO_TAGS


def test_the_newest_version_of_each_call_is_told() -> None:
    with _answering(_told(_REDPANDA)) as broker:
        assert newest_calls(broker.address, {}, WAIT_S) == _REDPANDA


@pytest.mark.parametrize("body", [_told({}, error=35), _told(_REDPANDA)[:9]])
def test_an_error_and_an_answer_that_is_cut_short_are_told(body: bytes) -> None:
    with _answering(body) as broker, pytest.raises(KafkaProtocolError):
        newest_calls(broker.address, {}, WAIT_S)
