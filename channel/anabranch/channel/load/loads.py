"""Segments' load on Kafka: the table of it that every node keeps, and the topic between the nodes.

A lost record is written again when the load changes (`soft_state`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from anabranch.channel.codec import LOADS
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.load.soft_state import SoftStateTopic
from anabranch.core.autoscale.load import LoadRecord, SegmentLoad, load_key, parse_load_key


class SegmentKey(msgspec.Struct, frozen=True, gc=False):
    """A segment; `topic` is `tenant/namespace/name`."""

    topic: str
    incarnation: int
    segment_id: int

    @property
    def key(self) -> str:
        """Its load's key on Kafka."""
        return load_key(self.topic, self.incarnation, self.segment_id)


LoadChange = tuple[SegmentKey, SegmentLoad | None]  # None: it takes no messages any more


class LoadTable:
    """The newest load of each active segment that was read. To be used by one thread."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, dict[int, SegmentLoad]]] = {}

    def segments(self, topic: str, incarnation: int) -> Mapping[int, SegmentLoad]:
        """Returns the loads by segment id; a segment without a written load is not there."""
        return self._topics.get(topic, {}).get(incarnation, {})

    def topics(self) -> Iterator[str]:
        """The topics that something is known of."""
        return iter(list(self._topics))

    def places(self, topic: str) -> Iterator[SegmentKey]:
        """The segments of a topic, and of its former incarnations, that something is known of."""
        for incarnation, segments in self._topics.get(topic, {}).items():
            for segment_id in segments:
                yield SegmentKey(topic, incarnation, segment_id)

    def take(self, changes: Iterable[LoadChange]) -> None:
        """Returns the records read, in order."""
        for place, load in changes:
            if load is None:
                self._drop(place)
                continue
            known = self._topics.setdefault(place.topic, {}).setdefault(place.incarnation, {})
            known[place.segment_id] = load

    def _drop(self, place: SegmentKey) -> None:
        incarnations = self._topics.get(place.topic, {})
        segments = incarnations.get(place.incarnation, {})
        if segments.pop(place.segment_id, None) is None:
            return
        if not segments:
            del incarnations[place.incarnation]
        if not incarnations:
            del self._topics[place.topic]


class KafkaLoads(SoftStateTopic[LoadRecord, LoadChange]):
    """Reads everybody's load records from the first one on, and writes this node's.

    `write` is for any thread, `poll` for one.
    """

    def __init__(self, connection: KafkaConnection, topics: Topics) -> None:
        super().__init__(connection, topics.load, "load", LOADS)

    def write(self, loads: Mapping[SegmentKey, LoadRecord | None]) -> None:
        """Has the loads written soon; None takes one away. Never blocks; a newer one replaces."""
        self.write_keys({place.key: load for place, load in loads.items()})

    def _change(self, key: str, record: LoadRecord | None, written_ms: int) -> LoadChange | None:
        found = parse_load_key(key)
        if found is None:
            return None
        return SegmentKey(*found), None if record is None else record.at(written_ms)
