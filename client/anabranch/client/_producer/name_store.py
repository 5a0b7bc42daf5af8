"""`NameStore`: what Kafka keeps of a producer's name, and what the name has stored.

It asks Kafka's coordinators and leaders over the client's connections. Its methods raise OSError or
KafkaNotYetError if they are to be called again, and KafkaProtocolError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeVar

from anabranch.client._aio import on_thread
from anabranch.client._producer import sequences
from anabranch.client._producer.sequences import Commits, Place, Stored
from anabranch.client._topics.layout import TopicLayout
from anabranch.core.errors import InvalidInputError
from anabranch.core.topics import kafka_names
from anabranch.wire.kafka import committed, names, producer_state, producing, stored
from anabranch.wire.kafka.link import KafkaLinks
from anabranch.wire.kafka.producing import KafkaNotYetError
from anabranch.wire.kafka.protocol import Address, Partition, ResponseReader

_T = TypeVar("_T")
Owner = tuple[int, int]  # producer id and epoch

_ASK_S: Final = 5.0
_TRANSACTION_MS: Final = 30_000
_PARTITIONS_MAX: Final = 500  # of a request
_COMMIT_BYTES_MAX: Final = 900_000  # Kafka stores a commit as one batch of records
_RECORD_BYTES: Final = 64
_FETCH_BYTES: Final = 8 << 20
_PARTITION_BYTES: Final = 1 << 20


class NameStore:
    """The part of Kafka in one name, which messages show as `hash`."""

    def __init__(self, name: str, layout: TopicLayout, links: KafkaLinks) -> None:
        self.hash = sequences.name_hash(layout, name)
        self._group, self._transaction = kafka_names.producer_name(
            _prefix(layout), layout.topic, layout.incarnation, self.hash
        )
        self._links = links
        self._coordinators: dict[int, Address] = {}

    async def become(self, owner: Owner = (-1, -1)) -> Owner:
        """Becomes the owner of the transactional id, under a new epoch."""
        body = names.own_id_request(self._transaction, _TRANSACTION_MS, owner)
        call = (producing.INIT_PRODUCER_ID, producing.INIT_PRODUCER_ID_VERSION)
        return await self._ask(names.TRANSACTION, call, body, names.read_own_id)

    async def own(self, owner: Owner) -> None:
        """Raises NameTakenError if somebody else is the owner. Aborts what is open."""
        body = names.end_request(self._transaction, owner)
        await self._ask(names.TRANSACTION, names.END_TRANSACTION, body, names.read_owner)

    async def commits(self) -> Commits:
        """Returns all that is committed."""
        body = committed.committed_request({self._group: None})
        told = await self._ask(committed.GROUP, committed.OFFSET_FETCH, body, names.read_commits)
        metadata = told.metadata
        return {place: (at, metadata.get(place, "")) for place, at in told.offsets.items()}

    async def commit(self, commits: Commits) -> None:
        """Commits offsets with their metadata, in one piece if Kafka takes that."""
        left, size = dict[Partition, tuple[int, str]](), 0
        for number, (place, each) in enumerate(commits.items(), start=1):
            left[place] = each
            size += len(self._group) + len(place[0]) + len(each[1]) + _RECORD_BYTES
            if size >= _COMMIT_BYTES_MAX or number == len(commits):
                body = names.commit_request(self._group, left)
                await self._ask(committed.GROUP, names.OFFSET_COMMIT, body, names.read_codes)
                left, size = {}, 0

    async def add(self, owner: Owner, places: Collection[Partition]) -> None:
        """Adds partitions to the transaction of the owner."""
        body = names.add_partitions_request(self._transaction, owner, places)
        await self._ask(names.TRANSACTION, names.ADD_PARTITIONS, body, names.read_codes)

    async def _ask(
        self, kind: int, call: tuple[int, int], body: bytes, read: Callable[[ResponseReader], _T]
    ) -> _T:
        """Asks the coordinator of the group or of the transactional id."""
        try:
            if kind not in self._coordinators:
                name = self._group if kind == committed.GROUP else self._transaction
                question = committed.coordinators_request(kind, [name])
                self._coordinators[kind] = await self._links.ask(
                    None, committed.FIND_COORDINATOR, question, names.read_coordinator, _ASK_S
                )
            return await self._links.ask(self._coordinators[kind], call, body, read, _ASK_S)
        except (OSError, KafkaNotYetError):
            self._coordinators.pop(kind, None)
            raise

    # --- reading ------------------------------------------------------------------------

    @staticmethod
    def partitions(layout: TopicLayout, places: Iterable[Place]) -> dict[Place, Partition]:
        """Returns Kafka's names of buckets."""
        parts = {**{each.segment_id: each for each in layout.children}, **layout.segments}
        return {each: (parts[each[0]].kafka_topic, each[1]) for each in places}

    async def leaders(
        self, places: Iterable[Partition], needed: Collection[str]
    ) -> dict[Partition, Address]:
        """Returns the leaders of partitions. A topic that is not `needed` may not be there yet."""
        told = await self._links.metadata(dict.fromkeys(topic for topic, _ in places), _ASK_S)
        found = {}
        for topic, known in told.topics.items():
            if isinstance(known, int):
                if topic in needed:
                    raise ConnectionError(f"Kafka does not tell who leads {topic}")
                continue
            for number, each in known.partitions.items():
                if each.leader not in told.brokers:
                    raise ConnectionError(f"Kafka does not tell who leads {topic}[{number}]")
                found[topic, number] = told.brokers[each.leader]
        return found

    async def ends(
        self, places: Iterable[Partition], leaders: Mapping[Partition, Address]
    ) -> dict[Partition, int]:
        """Returns the committed ends of partitions."""
        asked: dict[Address, list[Partition]] = {}
        for place in places:
            asked.setdefault(leaders[place], []).append(place)
        call = (producer_state.LIST_OFFSETS, producer_state.LIST_OFFSETS_VERSION)
        told = await asyncio.gather(
            *(
                self._links.ask(
                    address,
                    call,
                    producer_state.offsets_request(each, producer_state.LATEST),
                    names.read_ends,
                    _ASK_S,
                )
                for address, each in asked.items()
            )
        )
        return {place: end for each in told for place, end in each.items()}

    async def read(
        self, partitions: Mapping[Place, Partition], spans: Mapping[Place, tuple[int, int]]
    ) -> dict[int, Stored] | None:
        """Returns the numbers of the name in these spans of offsets, None where they are gone."""
        found: dict[int, Stored] = {}
        left = {partitions[place]: begin for place, (begin, _) in spans.items()}
        places = {partition: place for place, partition in partitions.items()}
        leaders = await self.leaders(left, {topic for topic, _ in left})
        while left:
            asked: dict[Address, dict[str, dict[int, int]]] = {}
            for (topic, number), at in list(left.items())[:_PARTITIONS_MAX]:
                by_topic = asked.setdefault(leaders[topic, number], {})
                by_topic.setdefault(topic, {})[number] = at
            call = (stored.FETCH, stored.FETCH_VERSION)
            for told in await asyncio.gather(
                *(
                    self._links.ask(
                        address,
                        call,
                        stored.fetch_request(topics, _FETCH_BYTES, _PARTITION_BYTES),
                        stored.read_fetched,
                        _ASK_S,
                    )
                    for address, topics in asked.items()
                )
            ):
                if any(data is None for data in told.values()):
                    return None
                await on_thread(self._collect, told, places, left, found)
            for partition, place in places.items():
                if partition in left and left[partition] >= spans[place][1]:
                    del left[partition]
        return found

    def _collect(
        self,
        told: Mapping[Partition, bytes | None],
        places: Mapping[Partition, Place],
        left: dict[Partition, int],
        found: dict[int, Stored],
    ) -> None:
        for partition, data in told.items():
            at = left.pop(partition)
            for batch in stored.batches(data or b""):
                at = max(at, batch.next_offset)
                for record in batch.records:
                    sequence = sequences.sequence_of(record.headers, self.hash)
                    if sequence is not None:
                        found[sequence] = Stored(*places[partition], record.offset)
            left[partition] = at  # it comes last, from now on


def _prefix(layout: TopicLayout) -> str:
    """Returns the beginning of all of the cluster's names in Kafka. Raises InvalidInputError."""
    stem = kafka_names.segments_head("") + kafka_names.stem(layout.topic)
    for part in (*layout.active, *layout.children):
        if not part.info.is_legacy and stem in part.kafka_topic:
            return part.kafka_topic.partition(stem)[0]
    raise InvalidInputError(
        f"topic://{layout.topic} is an adopted Kafka topic, which takes no producer with a name: "
        "cut it over before (anabranch topics prepare)"
    )
