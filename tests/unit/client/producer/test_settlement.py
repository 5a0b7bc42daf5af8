"""What the number of the last message that a sealed partition has says of those in doubt."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from anabranch import client as sdk
from anabranch.client._producer import settlement
from anabranch.client._producer.batch import SEQUENCES, PendingMessage, ProducerId
from anabranch.client._producer.partition_writer import PartitionWriter
from anabranch.client._producer.settlement import is_stored, sealed_end
from anabranch.core.entities.layout import SegmentLayout
from anabranch.wire.kafka import producer_state
from anabranch.wire.kafka.producer_state import ProducerState
from anabranch.wire.kafka.protocol import KafkaProtocolError
from support.still_watch import layout_of

MINE, OTHERS = 7, 8
_FIRST = SegmentLayout.initial(1, 1)
Counted = tuple[int, int, int]  # producer, epoch, last sequence number


def in_doubt(number: int, count: int = 3) -> PartitionWriter:
    """So many messages are in doubt, the first of them with that number."""
    segment = layout_of(_FIRST).active[0]
    writer = PartitionWriter(1, segment, 0, producer=ProducerId(MINE, 0), refused_number=number)
    writer.refused = [PendingMessage(None, b"%d" % each) for each in range(count)]
    return writer


@pytest.mark.parametrize(
    ("number", "states", "there"),
    [
        (5, [(OTHERS, 0, 7), (MINE, 0, 4)], False),
        (5, [(OTHERS, 0, 4), (MINE, 0, 7)], True),
        (0, [(OTHERS, 0, 2)], False),  # nothing of the producer was ever stored
        (0, [(MINE, 0, -1)], False),  # only the end of a transaction
        (0, [(MINE, 0, 2)], True),
        (SEQUENCES - 1, [(MINE, 0, 1)], True),  # they go on at 0 after the last one
        (SEQUENCES - 1, [(MINE, 0, SEQUENCES - 2)], False),
        (0, [(MINE, 0, SEQUENCES - 1)], False),
    ],
)
def test_a_batch_is_there_if_the_last_number_is_that_of_its_last_message(
    number: int, states: list[Counted], there: bool
) -> None:
    assert is_stored(in_doubt(number), [ProducerState(*each) for each in states]) is there


@pytest.mark.parametrize(
    "states",
    [
        [(MINE, 1, 7)],  # another epoch counted it
        [(MINE, 0, 3)],  # less than was acknowledged
        [(MINE, 0, 6)],  # a part of the batch
        [(MINE, 0, 8)],  # more than was tried
        [(OTHERS, 0, 7)],  # Kafka forgets a producer that has rested for a day
    ],
)
def test_what_cannot_be_is_not_believed(states: list[Counted]) -> None:
    with pytest.raises(sdk.UnknownOutcomeError, match="must be 4 or 7"):
        is_stored(in_doubt(5), [ProducerState(*each) for each in states])


def test_of_a_pruned_segment_nothing_can_be_known_and_of_another_its_end_is() -> None:
    ended = layout_of(_FIRST.replaced((0,), _FIRST.split_children(0), {0: (9,)}, 0))
    assert sealed_end(in_doubt(0), ended) == 9
    with pytest.raises(sdk.UnknownOutcomeError, match="pruned"):
        sealed_end(in_doubt(0), replace(ended, segments={}))


def test_a_leader_that_may_not_tell_leaves_it_unknown_and_one_out_of_reach_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors: list[Exception] = [KafkaProtocolError("it may not tell"), ConnectionResetError("gone")]

    def ask(*_: object) -> list[ProducerState]:
        if errors:
            raise errors.pop(0)
        return [ProducerState(MINE, 0, 2)]

    monkeypatch.setattr(producer_state, "ask", ask)
    with pytest.raises(sdk.UnknownOutcomeError, match="it may not tell"):
        settlement.ask(in_doubt(0), ("there", 1), 9, {}, 60.0)
    with pytest.raises(OSError, match="gone"):
        settlement.ask(in_doubt(0), ("there", 1), 9, {}, 60.0)
    assert settlement.ask(in_doubt(0), ("there", 1), 9, {}, 60.0)
