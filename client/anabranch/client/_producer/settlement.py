"""Settles messages in doubt: tells if a sealed partition holds a batch that was tried.

Its leader tells the number of the last message that it has of our producer (`producer_state`).
Numbers have no gap and a batch is stored as a whole. The partition is sealed, so its content is
final. Neither content nor time is compared: equal messages of other producers cannot be mistaken
for ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from anabranch.client._errors import UnknownOutcomeError
from anabranch.client._producer.batch import SEQUENCES
from anabranch.client._producer.partition_writer import PartitionWriter
from anabranch.client._topics.layout import TopicLayout
from anabranch.wire.kafka import producer_state
from anabranch.wire.kafka.producer_state import ProducerState
from anabranch.wire.kafka.protocol import Address, KafkaProtocolError

_ASK_S_MAX: Final = 10.0
_NOTHING: Final = -1


def sealed_end(writer: PartitionWriter, layout: TopicLayout) -> int:
    """Returns the end at which the writer's partition was sealed. Raises UnknownOutcomeError."""
    part = layout.segments.get(writer.segment.segment_id)
    if part is None or not part.info.end_offsets:
        raise UnknownOutcomeError("its segment was pruned")
    return part.info.end_offsets[writer.bucket]


def ask(
    writer: PartitionWriter, leader: Address, end: int, kafka: Mapping[str, Any], patience_s: float
) -> bool:
    """Asks the leader, and returns True if the partition, sealed at `end`, holds the refused
    messages. Blocks.

    Raises OSError if it, or another leader, must be asked again, and UnknownOutcomeError.
    """
    place = (writer.segment.kafka_topic, writer.bucket)
    try:
        states = producer_state.ask(leader, place, end, kafka, min(patience_s, _ASK_S_MAX))
    except KafkaProtocolError as error:
        raise UnknownOutcomeError(str(error)) from None
    return is_stored(writer, states)


def is_stored(writer: PartitionWriter, states: list[ProducerState]) -> bool:
    """Returns True if the refused messages are there, by the leader's states of all producers.

    Raises UnknownOutcomeError if these states are impossible.
    """
    producer = writer.producer
    if producer is None:
        raise UnknownOutcomeError("its producer id is not known any more")
    mine = next((state for state in states if state.producer_id == producer.id), None)
    before = (writer.refused_number - 1) % SEQUENCES
    last = (before + len(writer.refused)) % SEQUENCES
    if writer.refused_number == 0 and (
        mine is None or mine.epoch < producer.epoch or mine[1:] == (producer.epoch, _NOTHING)
    ):
        return False  # nothing of the producer was ever stored; a former owner's may be there
    # Kafka forgets a producer that has rested for a day.
    if mine is None or mine.epoch != producer.epoch or mine.last_sequence not in (before, last):
        told = "nothing" if mine is None else f"number {mine.last_sequence} of epoch {mine.epoch}"
        raise UnknownOutcomeError(f"Kafka tells {told} of it, where it must be {before} or {last}")
    return mine.last_sequence == last
