"""What a producer of our own says to Kafka, to the byte, and what the answers mean."""

from __future__ import annotations

import struct

import pytest

from anabranch.wire.kafka.metadata import (
    PartitionMetadata,
    TopicMetadata,
    metadata_request,
    read_metadata,
)
from anabranch.wire.kafka.producing import (
    KafkaCode,
    KafkaNotYetError,
    Produced,
    ProducedPartition,
    code_name,
    produce_request,
    producer_id_request,
    read_produced,
    read_producer_id,
)
from anabranch.wire.kafka.protocol import KafkaProtocolError, ResponseReader, text
from support.frame_broker import TAGS


def test_records_are_sent_as_they_are_given_without_a_copy() -> None:
    first, second, third = b"abc", bytearray(b"defg"), memoryview(bytes(200))
    parts = produce_request({"one": [(2, first), (7, second)], "t": [(0, third)]}, 1_500)
    assert [each for each in parts if any(each is given for given in (first, second, third))] == [
        first,
        second,
        third,
    ]
    assert b"".join(parts) == (
        b"\0\xff\xff\0\0\x05\xdc\x03"
        b"\x04one\x03\0\0\0\x02\x04abc\0\0\0\0\x07\x05defg\0\0"
        b"\x02t\x02\0\0\0\0\xc9\x01" + bytes(200) + b"\0\0"
        b"\0"
    )


def test_the_answer_tells_of_each_partition_what_became_of_its_records() -> None:
    stored = struct.pack(">ihqqq", 2, 0, 2**40, -1, 5) + b"\x01\0" + TAGS
    said = b"\x03" + struct.pack(">i", 0) + b"\0" + TAGS + struct.pack(">i", 1) + text("bad") + TAGS
    refused = struct.pack(">ihqqq", 7, 87, -1, -1, -1) + said + b"\0" + TAGS
    worded = struct.pack(">ihqqq", 0, 10, -1, 9, -1) + b"\x01" + text("too large") + TAGS
    data = b"\x03" + text("one") + b"\x03" + stored + refused + TAGS
    data += text("t") + b"\x02" + worded + TAGS + struct.pack(">i", 250) + TAGS
    told = Produced(
        250,
        [
            ProducedPartition("one", 2, 0, 2**40, -1, 5, ""),
            ProducedPartition("one", 7, 87, -1, -1, -1, "bad"),
            ProducedPartition("t", 0, 10, -1, 9, -1, "too large"),
        ],
    )
    assert read_produced(ResponseReader(data)) == told
    for size in range(len(data) - len(TAGS)):
        with pytest.raises(KafkaProtocolError, match="cut short"):
            read_produced(ResponseReader(data[:size]))


def test_a_producer_id_is_asked_for_without_a_transaction() -> None:
    assert producer_id_request() == b"\0\0\0\0\0" + b"\xff" * 10 + b"\0"
    given = struct.pack(">ihqh", 0, 0, 2**40, 3) + TAGS
    assert read_producer_id(ResponseReader(given)) == (2**40, 3)


@pytest.mark.parametrize(
    ("error", "passes", "why"),
    [
        (14, True, r"COORDINATOR_LOAD_IN_PROGRESS \(14\)"),
        (15, True, "COORDINATOR_NOT_AVAILABLE"),
        (16, True, "NOT_COORDINATOR"),
        (7, True, "REQUEST_TIMED_OUT"),
        (31, False, r"CLUSTER_AUTHORIZATION_FAILED \(31\); .*IDEMPOTENT_WRITE"),
        (120, False, "error 120"),
    ],
)
def test_why_there_is_no_producer_id_is_told(error: int, passes: bool, why: str) -> None:
    data = struct.pack(">ihqh", 0, error, -1, -1) + b"\0"
    with pytest.raises(KafkaProtocolError, match=why) as told:
        read_producer_id(ResponseReader(data))
    assert isinstance(told.value, KafkaNotYetError) is passes


def test_codes_have_kafka_s_names() -> None:
    assert code_name(KafkaCode.NOT_LEADER_OR_FOLLOWER) == "NOT_LEADER_OR_FOLLOWER (6)"
    assert code_name(1_000) == "error 1000"


def test_metadata_tells_who_leads_and_of_what_there_is_nothing() -> None:
    copies = b"\x04" + struct.pack(">iii", 1, 2, 3)
    partition = struct.pack(">hiii", 5, 4, -1, 9) + copies + copies + b"\x01" + TAGS
    topic = b"\0\0" + text("one") + bytes(16) + b"\0\x02" + partition + struct.pack(">i", 0) + TAGS
    gone = b"\0\x03" + text("two") + bytes(16) + b"\0\x01" + struct.pack(">i", 0) + TAGS
    brokers = b"\x02" + struct.pack(">i", 1) + text("host") + struct.pack(">i", 9) + b"\0" + TAGS
    data = struct.pack(">i", 0) + brokers + b"\0" + struct.pack(">i", 1) + b"\x03" + topic + gone
    told = read_metadata(ResponseReader(data + TAGS))
    assert told.brokers == {1: ("host", 9)}
    assert told.topics == {
        "one": TopicMetadata("A" * 22, {4: PartitionMetadata(5, -1, 9, 3)}, False, 0),
        "two": 3,
    }
    assert metadata_request(["one"]) == b"\x02" + bytes(16) + b"\x04one\0\0\0\0"
    assert metadata_request(["one"], operations=True)[-3:] == b"\0\x01\0"
    assert metadata_request([]) == b"\x01\0\0\0"
